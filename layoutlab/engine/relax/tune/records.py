"""Tuning records of one variant: MetaSchedule's JSON database, opened safely and counted."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from tvm.s_tir.meta_schedule.tune_context import _normalize_mod

from layoutlab.engine.base import TaskCoverage
from layoutlab.engine.relax.layout.plan import op_name
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm

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


def trial_times(database: meta_schedule.database.Database, workloads: Sequence[tvm.IRModule]) -> list[list[float]]:
    """Seconds of every trial of each workload, in the order given; failed ones are FAILED_S."""
    records = database.get_all_tuning_records()
    found = []
    for mod in workloads:
        times: list[float] = []
        if database.has_workload(mod):
            workload = database.commit_workload(mod)
            times = [_seconds(record) for record in records if record.workload.same_as(workload)]
        found.append(times)
    return found


def coverage(
    database: meta_schedule.database.Database, tasks: Sequence[meta_schedule.ExtractedTask]
) -> list[TaskCoverage]:
    """What was tried for each task, in the order given. Failed candidates are counted, not hidden."""
    times = trial_times(database, [task.dispatched[0] for task in tasks])
    return [
        TaskCoverage(
            name=str(task.task_name),
            ops=int(task.weight),
            trials=len(seconds),
            failed=sum(time >= FAILED_S for time in seconds),
            best_us=_best_us(seconds),
        )
        for task, seconds in zip(tasks, times, strict=True)
    ]


def conv_times_us(database: meta_schedule.database.Database, lowered: tvm.IRModule) -> list[float | None]:
    """The best measured time of the function that computes each convolution, in execution order, in microseconds.

    The times are those of candidates measured alone, with what is fused into the convolution; None is untuned.
    """
    calls = [
        binding.value
        for block in lowered["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, tvm.relax.Call) and op_name(binding.value) == "call_tir"
    ]
    # Our legalisation and TVM's both name the functions of convolutions after them, and fusing keeps the names.
    functions = [lowered[call.args[0]] for call in calls if "conv2d" in call.args[0].name_hint]
    workloads = [_normalize_mod(function) for function in functions]
    return [_best_us(seconds) for seconds in trial_times(database, workloads)]


def _best_us(seconds: Sequence[float]) -> float | None:
    valid = [time for time in seconds if time < FAILED_S]
    return min(valid) * 1e6 if valid else None


def _seconds(record: meta_schedule.database.TuningRecord) -> float:
    times = [float(time) for time in record.run_secs or []]
    return sum(times) / len(times) if times else FAILED_S
