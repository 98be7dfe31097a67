"""Damaged ends of a variant's records: cut off, kept beside, and said.

MetaSchedule appends lines without syncing and refuses a whole file for one torn line. A kill or a full disk tears the
last line of either file, and a lost workload leaves records that name nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from layoutlab.records.files import RECORDS, SPENT, WORKLOADS, read_spent, renumbered, spent_bytes
from layoutlab.records.lines import Scan, scan
from layoutlab.records.replace import finish_replacing, replace_together


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What was dropped, in words, its bytes, the records among it, and the trials that are left."""

    what: str
    dropped_bytes: int
    dropped_records: int
    trials_left: int

    def text(self) -> str:
        """`the last record was torn (312 bytes) and was dropped; 847 trials are left`."""
        left = "1 trial is left" if self.trials_left == 1 else f"{self.trials_left} trials are left"
        return f"{self.what}; {left}"


def repair(folder: Path) -> Repair | None:
    """Drop what is damaged in the records of `folder`; returns what that was, None when all is whole.

    The bytes that are dropped are added to workloads.jsonl.torn and records.jsonl.torn.
    """
    finish_replacing(folder)
    workloads, records = (_bytes(folder / name) for name in (WORKLOADS, RECORDS))
    found = scan(workloads, records)
    if found.is_whole:
        return None
    dropped = renumbered(read_spent(folder), found.numbers)
    contents = {WORKLOADS: b"".join(found.workloads), RECORDS: b"".join(record.line() for record in found.records)}
    if (folder / SPENT).exists():
        contents[SPENT] = spent_bytes(dropped)
    torn = {WORKLOADS: b"".join(found.damaged_workloads), RECORDS: b"".join(found.damaged_records + found.homeless)}
    for name, data in torn.items():
        _keep(folder / f"{name}.torn", data)
    replace_together(folder, contents)
    return Repair(
        what=_what(found),
        dropped_bytes=sum(map(len, torn.values())),
        dropped_records=len(found.damaged_records) + len(found.homeless),
        trials_left=len(found.records) + sum(item.trials for item in dropped),
    )


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _keep(path: Path, data: bytes) -> None:
    if data:
        with open(path, "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def _what(found: Scan) -> str:
    parts = []
    if found.damaged_workloads:
        parts.append(_damage("workload", found.damaged_workloads, found.workload_torn))
    if found.damaged_records:
        parts.append(_damage("record", found.damaged_records, found.record_torn))
    if found.homeless:
        count = len(found.homeless)
        size = sum(map(len, found.homeless))
        parts.append(f"{count} record{'s' if count > 1 else ''} had no workload ({size} bytes)")
    if len(parts) > 1:
        return f"{', '.join(parts)}: all that was dropped"
    plural = len(found.damaged_workloads + found.damaged_records + found.homeless) > 1
    return f"{parts[0]} and {'were' if plural else 'was'} dropped"


def _damage(name: str, lines: tuple[bytes, ...], torn: bool) -> str:
    size = f"{sum(map(len, lines))} bytes"
    if torn:
        return f"the last {name} was torn ({size})"
    count = len(lines)
    return f"{count} {name}{'s were' if count > 1 else ' was'} damaged ({size})"
