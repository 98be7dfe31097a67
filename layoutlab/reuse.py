"""Tuning records of the same variant in another spec's run: they are continued, not made again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# Written in this order by the tuner, so copied in the other: a record must not name a workload that is not there.
_FILES = ("workloads.jsonl", "records.jsonl")
# Why candidates failed; not there when none did.
_FAILURES = "failures.jsonl"


def take_over_records(folder: Path, runs: Path) -> Path | None:
    """Copy the longest records of a variant with the same key to `folder`, which has none; returns whose they were.

    `folder` is `runs/<spec>/<variant>-<key>`. The key is a hash of all that records depend on (model, layouts, target,
    device, versions, tuning options), so the same key under another spec or name is the same variant.
    """
    if (folder / _FILES[-1]).exists():
        return None
    key = folder.name.rpartition("-")[2]
    others = [path for path in runs.glob(f"*/*-{key}") if all((path / name).is_file() for name in _FILES)]
    if not others:
        return None
    longest = max(others, key=lambda path: (path / _FILES[-1]).stat().st_size)
    failures = longest / _FAILURES
    if failures.is_file():
        shutil.copyfile(failures, folder / _FAILURES)
    for name in reversed(_FILES):
        partial = folder / f"{name}.partial"
        shutil.copyfile(longest / name, partial)
    for name in _FILES:
        os.replace(folder / f"{name}.partial", folder / name)
    return longest
