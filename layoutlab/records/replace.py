"""Files replaced in one step: alone, or several that must change together."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

# Says that the new contents of the files it names are whole: what is left to do is to rename them.
_MARKER = "replacing.json"
_NEXT = ".next"


def write_synced(path: Path, data: bytes) -> None:
    """Replace a file's content: a crash leaves the old or the new one."""
    partial = path.with_name(path.name + _NEXT)
    _write(partial, data)
    os.replace(partial, path)


def replace_together(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Replace files of a folder so that after a crash, and `finish_replacing`, all or none of them are new."""
    for name, data in contents.items():
        _write(folder / f"{name}{_NEXT}", data)
    write_synced(folder / _MARKER, json.dumps(list(contents)).encode())
    finish_replacing(folder)


def finish_replacing(folder: Path) -> None:
    """Do what is left of a replacement that was interrupted; one whose contents were not whole never happened."""
    marker = folder / _MARKER
    if marker.exists():
        for name in json.loads(marker.read_bytes()):
            if (folder / f"{name}{_NEXT}").exists():
                os.replace(folder / f"{name}{_NEXT}", folder / name)
        marker.unlink()
    for leftover in folder.glob(f"*{_NEXT}"):
        leftover.unlink()


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
