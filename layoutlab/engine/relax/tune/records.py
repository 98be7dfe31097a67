"""Tuning records of one variant: MetaSchedule's JSON database, opened safely and read."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from tvm.s_tir.meta_schedule.tune_context import _normalize_mod

from layoutlab.engine.relax.layout.plan import op_name
from layoutlab.engine.relax.tune.failures import FAILURES_FILE
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
    cut_torn_end(folder / FAILURES_FILE)
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


def conv_times_us(database: meta_schedule.database.Database, lowered: tvm.IRModule) -> list[float | None]:
    """The best measured time of the function that computes each convolution, in execution order, in microseconds.

    The times are those of candidates measured alone, with what is fused into the convolution; None is untuned.
    """
    # Our legalisation and TVM's both name the functions of convolutions after them, and fusing keeps the names.
    functions = [lowered[name] for name in called_functions(lowered) if "conv2d" in name]
    workloads = [_normalize_mod(function) for function in functions]
    return [best_us(seconds) for seconds in trial_times(database, workloads)]


def called_functions(lowered: tvm.IRModule) -> list[str]:
    """Names of the functions that a lowered module's `main` calls, in execution order; one as often as it is called."""
    calls = [binding.value for block in lowered["main"].body.blocks for binding in block.bindings]
    return [
        str(call.args[0].name_hint)
        for call in calls
        if isinstance(call, tvm.relax.Call) and op_name(call) == "call_tir"
    ]


def best_us(seconds: Sequence[float]) -> float | None:
    """The best of the times of one workload's trials in microseconds; None when all failed."""
    valid = [time for time in seconds if time < FAILED_S]
    return min(valid) * 1e6 if valid else None


def _seconds(record: meta_schedule.database.TuningRecord) -> float:
    times = [float(time) for time in record.run_secs or []]
    return sum(times) / len(times) if times else FAILED_S
