"""Reading Linux' sysfs: cores, frequencies and temperatures as small files. What cannot be read is None."""

from __future__ import annotations

import re
from pathlib import Path

SYSFS = Path("/sys")


def read_text(path: Path) -> str | None:
    """The file's text without white space around it; None when it cannot be read or is empty."""
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    """The file's whole number; None when it cannot be read or holds something else."""
    try:
        return int(read_text(path) or "")
    except ValueError:
        return None


def core_folders(root: Path) -> dict[int, Path]:
    """The folder of each core that the kernel knows, offline ones included, by number."""
    try:
        names = [path for path in (root / "devices/system/cpu").iterdir() if re.fullmatch(r"cpu[0-9]+", path.name)]
    except OSError:
        return {}
    return dict(sorted((int(path.name[3:]), path) for path in names))
