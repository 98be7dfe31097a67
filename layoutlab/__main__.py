"""`python -m layoutlab`."""

import sys

from layoutlab.cli import main

sys.exit(main())
