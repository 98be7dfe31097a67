"""Where things are, for tests of every part."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / "experiments" / "models" / "tiny"
