"""Tuning one variant: the budget spent over its tasks, batch by batch.

MetaSchedule brings the design spaces, the search strategies, the cost model and the database. The loop is ours
because the stock scheduler writes the results of its first round only when every task has had one (minutes in
which an interruption loses all), measures while it builds, and starts a resumed budget from zero.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from layoutlab.device.base import DeviceKind
from layoutlab.engine.base import TuningOptions
from layoutlab.engine.relax.tune.pool import CandidatePool, open_pool
from layoutlab.engine.relax.tune.records import called_functions, trial_times
from layoutlab.engine.relax.tune.task import TaskSearch
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm

Report = Callable[..., None]


def extract_tasks(mod: tvm.IRModule, target: tvm.target.Target) -> list[meta_schedule.ExtractedTask]:
    """The distinct functions of a lowered module, in execution order, each with the number of ops it serves."""
    tasks = meta_schedule.relax_integration.extract_tasks(mod, target)
    # TVM gives them in the order of a hash map. A task is named after the first function that it serves.
    order = {name: number for number, name in reversed(list(enumerate(called_functions(mod))))}
    return sorted(tasks, key=lambda task: order[str(task.task_name)])


def tune(
    tasks: Sequence[meta_schedule.ExtractedTask],
    target: tvm.target.Target,
    options: TuningOptions,
    database: meta_schedule.database.Database,
    scratch: Path,
    report: Report,
    device_kind: DeviceKind = "host",
    again: bool = False,
) -> str:
    """Spend what is left of `options.trials` on the tasks; trials already in the database count.

    Libraries of candidates are kept in the folder `scratch` while they are needed; what a killed run left there is
    removed.

    `device_kind` is "host" or "kryo"; on the simulated core times are cycles at its clock.

    After each batch `report("trials", done=, total=, failed=, tuned=, tasks=, stopped_early=, best_us=)` is called;
    `best_us` is the sum of the best times over all ops in microseconds, which is not a latency.

    Returns why it ended: "budget", "time limit", "early stop" (no task is left, and some stopped early) or "nothing
    left". A task that an earlier run gave up stays so unless `again`.
    """
    ends_at = math.inf if options.time_limit_s is None else time.monotonic() + options.time_limit_s
    # MetaSchedule's cost models draw from numpy's global generator, XGBoost's until it was trained.
    np.random.seed(options.seed)
    cost_model = _cost_model(options)
    seeds = meta_schedule.utils.fork_seed(options.seed, n=len(tasks))
    # Costs on the simulated core repeat exactly; with a search that does so too, so does the whole tuning.
    threads = 1 if device_kind == "kryo" else os.cpu_count() or 1
    searches = [
        TaskSearch(task, target, options, database, cost_model, seed, threads)
        for task, seed in zip(tasks, seeds, strict=True)
    ]
    for search, times in zip(searches, trial_times(database, [task.dispatched[0] for task in tasks]), strict=True):
        search.resume(times)
        if again:
            search.try_again()
    _show(searches, options, report)
    if _left(searches, options) <= 0 or not searches:
        return _why_ended(searches, options, ends_at)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    with open_pool(device_kind, target, scratch) as pool:
        _first_round(searches, options, pool, report, ends_at)
        _improve(searches, options, pool, report, ends_at)
    shutil.rmtree(scratch, ignore_errors=True)
    return _why_ended(searches, options, ends_at)


def _cost_model(options: TuningOptions) -> meta_schedule.CostModel | None:
    """None where nothing is ranked: only the evolutionary search asks it."""
    if options.search != "evolutionary":
        return None
    return meta_schedule.CostModel.create(options.cost_model, num_tuning_cores=1)


def _why_ended(searches: Sequence[TaskSearch], options: TuningOptions, ends_at: float) -> str:
    if _left(searches, options) <= 0:
        return "budget"
    if time.monotonic() >= ends_at and not all(search.exhausted for search in searches):
        return "time limit"
    return "early stop" if any(search.stopped_early for search in searches) else "nothing left"


def first_batch_size(options: TuningOptions, tasks: int) -> int:
    """Random candidates for each task: a quarter of the budget over all, at most one batch, at least one."""
    return max(1, min(options.batch, options.trials // (4 * tasks)))


def _first_round(
    searches: Sequence[TaskSearch], options: TuningOptions, pool: CandidatePool, report: Report, ends_at: float
) -> None:
    for search in searches:
        count = min(first_batch_size(options, len(searches)), _left(searches, options))
        if search.trials or count <= 0 or time.monotonic() >= ends_at:
            continue
        candidates = search.propose_first(count)
        if candidates:
            search.add(candidates, pool.evaluate(candidates))
        search.end_first()
        _show(searches, options, report)


def _improve(
    searches: Sequence[TaskSearch], options: TuningOptions, pool: CandidatePool, report: Report, ends_at: float
) -> None:
    while (left := _left(searches, options)) > 0 and time.monotonic() < ends_at:
        alive = [search for search in searches if not search.exhausted]
        if not alive:
            return
        search = max(alive, key=TaskSearch.promise)
        candidates = search.propose(min(options.batch, left))
        if candidates:
            search.add(candidates, pool.evaluate(candidates))
            _show(searches, options, report)


def _left(searches: Sequence[TaskSearch], options: TuningOptions) -> int:
    return options.trials - sum(search.trials for search in searches)


def _show(searches: Sequence[TaskSearch], options: TuningOptions, report: Report) -> None:
    known = [(search.ops, search.best_s) for search in searches if search.best_s is not None]
    report(
        "trials",
        done=sum(search.trials for search in searches),
        total=options.trials,
        failed=sum(search.failed for search in searches),
        tuned=len(known),
        tasks=sum(not search.one_point for search in searches),
        stopped_early=sum(search.stopped_early for search in searches),
        best_us=1e6 * sum(ops * best for ops, best in known),
    )
