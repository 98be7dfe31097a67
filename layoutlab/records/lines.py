"""The lines of MetaSchedule's two files: what they say, and which of them are damaged."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# MetaSchedule stores a failed candidate with this time.
FAILED_S = 1e10

_LINE = re.compile(rb"[^\n]*\n|[^\n]+\Z")
_NUMBER = re.compile(rb"\[\s*(\d+)\s*,")


@dataclass(frozen=True, kw_only=True)
class Record:
    """One trial: the number of its workload's line, its mean seconds (FAILED_S: it failed), and the line's rest."""

    workload: int
    seconds: float
    rest: bytes

    @property
    def failed(self) -> bool:
        """Whether the trial gave no time."""
        return self.seconds >= FAILED_S

    def line(self) -> bytes:
        """The record as a line of records.jsonl."""
        return b"[%d,%s\n" % (self.workload, self.rest)


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What two files hold: what is whole, numbered anew, and the lines that are not.

    `numbers` maps the numbers of workloads in the file to those of `workloads`; `homeless` are records whose workload
    is damaged or missing.
    """

    workloads: tuple[bytes, ...]
    records: tuple[Record, ...]
    numbers: dict[int, int]
    damaged_workloads: tuple[bytes, ...]
    damaged_records: tuple[bytes, ...]
    homeless: tuple[bytes, ...]
    workload_torn: bool
    record_torn: bool

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged."""
        return not (self.damaged_workloads or self.damaged_records or self.homeless)


def scan(workloads: bytes, records: bytes) -> Scan:
    """Sort the lines of workloads.jsonl and records.jsonl into whole and damaged ones."""
    workload_lines, record_lines = _LINE.findall(workloads), _LINE.findall(records)
    whole = [number for number, line in enumerate(workload_lines) if _is_workload(line)]
    numbers = {number: position for position, number in enumerate(whole)}
    kept, damaged, homeless = [], [], []
    for line in record_lines:
        record = parse_record(line)
        if record is None:
            damaged.append(line)
        elif record.workload not in numbers:
            homeless.append(line)
        else:
            kept.append(Record(workload=numbers[record.workload], seconds=record.seconds, rest=record.rest))
    broken = [line for number, line in enumerate(workload_lines) if number not in numbers]
    return Scan(
        workloads=tuple(workload_lines[number] for number in whole),
        records=tuple(kept),
        numbers=numbers,
        damaged_workloads=tuple(broken),
        damaged_records=tuple(damaged),
        homeless=tuple(homeless),
        workload_torn=_only_the_last(broken, workload_lines),
        record_torn=_only_the_last(damaged, record_lines),
    )


def parse_record(line: bytes) -> Record | None:
    """The record a whole line holds; None for any other line."""
    data, number = _json(line), _NUMBER.match(line)
    if number is None or not (isinstance(data, list) and len(data) == 2):
        return None
    if not (isinstance(data[1], list) and len(data[1]) == 4):
        return None
    return Record(workload=int(number[1]), seconds=_mean(data[1][1]), rest=line[number.end() :].rstrip(b"\n"))


def _is_workload(line: bytes) -> bool:
    data = _json(line)
    return isinstance(data, list) and len(data) == 2 and all(isinstance(part, str) for part in data)


def _json(line: bytes) -> Any:
    """The value of a whole line: the newline is written last."""
    if not line.endswith(b"\n"):
        return None
    try:
        return json.loads(line)
    except ValueError:
        return None


def _mean(seconds: Any) -> float:
    times = seconds if isinstance(seconds, list) else []
    return sum(map(float, times)) / len(times) if times else FAILED_S


def _only_the_last(damaged: Sequence[bytes], lines: Sequence[bytes]) -> bool:
    return len(damaged) == 1 and damaged[0] is lines[-1]
