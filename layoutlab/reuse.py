"""Tuning records of the same variant in another spec's run: they are continued, not made again."""

from __future__ import annotations

from pathlib import Path

from layoutlab.records.files import RECORDS, SPENT, WORKLOADS
from layoutlab.records.identity import ABOUT
from layoutlab.records.replace import replace_together
from layoutlab.records.sources import has_records, origin_file

# The tuner writes a workload before its records, so they are read in the other order: a record must not name a
# workload that is not there.
_FILES = (RECORDS, WORKLOADS)
# What there may be besides: trials that are counted but not kept, and why candidates failed.
_OPTIONAL = (SPENT, "failures.jsonl")


def take_over_records(folder: Path, runs: Path) -> Path | None:
    """Copy the longest records of a variant with the same key to `folder`, which has none; returns whose they were.

    `folder` is `runs/<spec>/<variant>-<key>`. The key is a hash of all that records depend on (see
    `records.identity`), so the same key under another spec or name is the same variant. Records that were put there
    from elsewhere, as their about.json says, are left alone.
    """
    if has_records(folder):
        return None
    key = folder.name.rpartition("-")[2]
    others = [path for path in runs.glob(f"*/*-{key}") if _is_whole(path) and _about(path) == _about(folder)]
    if not others:
        return None
    longest = max(others, key=lambda path: (path / RECORDS).stat().st_size)
    names = [*_FILES, *(name for name in _OPTIONAL if (longest / name).exists())]
    contents = {name: (longest / name).read_bytes() for name in names}
    replace_together(folder, contents | origin_file("run", longest))
    return longest


def _is_whole(folder: Path) -> bool:
    return all((folder / name).is_file() for name in _FILES) and has_records(folder)


def _about(folder: Path) -> bytes | None:
    path = folder / ABOUT
    return path.read_bytes() if path.exists() else None
