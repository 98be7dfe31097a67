"""Paths and texts are UTF-8, whatever the locale says."""

from __future__ import annotations

import os
import sys


def use_utf8() -> None:
    """Begin this program anew in Python's UTF-8 mode, unless it is UTF-8 already what the system speaks.

    Under a locale without UTF-8 Python holds paths in a form that no library but its own understands, and cannot print
    what tables are made of. The mode is chosen when Python starts, and workers inherit it.
    """
    if sys.getfilesystemencoding().lower() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONUTF8": "1"})
