"""Tuning records of one variant: MetaSchedule's JSON database, opened safely and read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from tvm.s_tir.meta_schedule.tune_context import _normalize_mod

from layoutlab.engine.relax.layout.plan import op_name
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.records.files import RECORDS, WORKLOADS, Dropped, read_spent
from layoutlab.records.lines import FAILED_S
from layoutlab.records.repair import repair


def open_database(folder: Path) -> meta_schedule.database.JSONDatabase:
    """The variant's database in `folder`, created when absent; damaged lines, which MetaSchedule refuses, are cut."""
    folder.mkdir(parents=True, exist_ok=True)
    repair(folder)
    return open_lent(folder)


def open_lent(folder: Path) -> meta_schedule.database.JSONDatabase:
    """The database in `folder` as it is, to read from."""
    return meta_schedule.database.JSONDatabase(
        path_workload=str(folder / WORKLOADS), path_tuning_record=str(folder / RECORDS)
    )


def trial_times(database: meta_schedule.database.Database, workloads: Sequence[tvm.IRModule]) -> list[list[float]]:
    """Seconds of every trial of each workload, in the order given; failed ones are FAILED_S.

    Trials that are counted but not kept have the best time of those that are: no better one was dropped. Where none
    is kept they count as failed.
    """
    records = database.get_all_tuning_records()
    spent = _SpentTrials(database)
    found = []
    for mod in workloads:
        times: list[float] = []
        if database.has_workload(mod):
            workload = database.commit_workload(mod)
            times = [_seconds(record) for record in records if record.workload.same_as(workload)]
        found.append(times + spent.times(mod, min(times, default=FAILED_S)))
    return found


class _SpentTrials:
    """The trials of a database that are counted in its spent.json alone."""

    def __init__(self, database: meta_schedule.database.Database) -> None:
        # Workloads are found as the database finds its own, whatever hash their line has.
        self._index = meta_schedule.database.MemoryDatabase()
        self._dropped = []
        if isinstance(database, meta_schedule.database.JSONDatabase):
            self._dropped = [(self._index.commit_workload(mod), item) for mod, item in _dropped(database)]

    def times(self, mod: tvm.IRModule, best_s: float) -> list[float]:
        if not self._dropped or not self._index.has_workload(mod):
            return []
        workload = self._index.commit_workload(mod)
        items = [item for found, item in self._dropped if found.same_as(workload)]
        failed = sum(item.failed for item in items)
        return [best_s] * (sum(item.trials for item in items) - failed) + [FAILED_S] * failed


def _dropped(database: meta_schedule.database.JSONDatabase) -> Iterator[tuple[tvm.IRModule, Dropped]]:
    path = Path(database.path_workload)
    dropped = read_spent(path.parent)
    lines = path.read_bytes().splitlines() if dropped else []
    for item in (item for item in dropped if item.workload < len(lines)):
        # TVM takes apart arrays of its own only.
        workload = meta_schedule.database.Workload.from_json(tvm.runtime.convert(json.loads(lines[item.workload])))
        yield workload.mod, item


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
