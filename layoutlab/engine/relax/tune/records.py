"""Tuning records of one variant: MetaSchedule's JSON database, opened safely and counted."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from layoutlab.engine.base import TaskCoverage
from layoutlab.engine.relax.tvm_cpu import meta_schedule

# MetaSchedule stores a failed candidate with this time.
FAILED_S = 1e10


def open_database(folder: Path) -> meta_schedule.database.JSONDatabase:
    """The variant's database in `folder`, created when absent.

    MetaSchedule appends lines without syncing and refuses a whole file for one torn line, so a torn end (from a
    kill or a full disk) is cut off first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    workloads, records = folder / "workloads.jsonl", folder / "records.jsonl"
    cut_torn_end(workloads)
    cut_torn_end(records)
    return meta_schedule.database.JSONDatabase(path_workload=str(workloads), path_tuning_record=str(records))


def cut_torn_end(path: Path) -> int:
    """Cut everything after the last whole JSON line of a file; returns the number of bytes cut."""
    if not path.exists():
        return 0
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    while whole:
        start = data.rfind(b"\n", 0, whole - 1) + 1
        if _is_json(data[start:whole]):
            break
        whole = start
    if whole < len(data):
        with open(path, "r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())
    return len(data) - whole


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def trial_times(
    database: meta_schedule.database.Database, tasks: Sequence[meta_schedule.ExtractedTask]
) -> list[list[float]]:
    """Seconds of every trial of each task, in the order given; failed ones are FAILED_S."""
    records = database.get_all_tuning_records()
    found = []
    for task in tasks:
        times: list[float] = []
        if database.has_workload(task.dispatched[0]):
            workload = database.commit_workload(task.dispatched[0])
            times = [_seconds(record) for record in records if record.workload.same_as(workload)]
        found.append(times)
    return found


def coverage(
    database: meta_schedule.database.Database, tasks: Sequence[meta_schedule.ExtractedTask]
) -> list[TaskCoverage]:
    """What was tried for each task, in the order given. Failed candidates are counted, not hidden."""
    found = []
    for task, times in zip(tasks, trial_times(database, tasks), strict=True):
        valid = [time for time in times if time < FAILED_S]
        found.append(
            TaskCoverage(
                name=str(task.task_name),
                ops=int(task.weight),
                trials=len(times),
                failed=len(times) - len(valid),
                best_us=min(valid) * 1e6 if valid else None,
            )
        )
    return found


def _seconds(record: meta_schedule.database.TuningRecord) -> float:
    times = [float(time) for time in record.run_secs or []]
    return sum(times) / len(times) if times else FAILED_S
