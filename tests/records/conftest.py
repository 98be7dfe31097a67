"""A small real record set, and copies of it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from layoutlab.records.files import RecordSet, read_set
from layoutlab.records.identity import about_bytes
from layoutlab.records.lines import parse_record

# Eight trials of tiny_conv in NHWC, tuned on a Xeon; exported by `layoutlab records export`.
TINY_CONV = Path(__file__).parent / "tiny_conv"

# The seconds of a record stand between its trace and its target.
SECONDS = re.compile(rb"\],\[[0-9.e+-]+\],\{")


@pytest.fixture(scope="session")
def tiny_conv() -> RecordSet:
    """The records of five workloads: one trial each, and four of workload 3."""
    return read_set(TINY_CONV)


def unpack(records: RecordSet, folder: Path) -> Path:
    """The set as files that are not compressed, as a run has them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in {"about.json": about_bytes(records.identity), **records.contents()}.items():
        (folder / name).write_bytes(data)
    return folder


def with_failures(records: RecordSet, *numbers: int) -> RecordSet:
    """The set with some records as MetaSchedule keeps those of failed candidates."""
    changed = list(records.records)
    for number in numbers:
        line, replaced = SECONDS.subn(b"],[10000000000],{", changed[number].line())
        failed = parse_record(line)
        assert replaced == 1 and failed is not None and failed.failed
        changed[number] = failed
    return replace(records, records=tuple(changed))
