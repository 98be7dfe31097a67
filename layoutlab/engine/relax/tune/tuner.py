"""Tuning one variant: the budget spent over its tasks, batch by batch.

MetaSchedule brings the design spaces, the search strategies, the cost model and the database. The loop is ours
because the stock scheduler writes the results of its first round only when every task has had one (minutes in
which an interruption loses all), measures while it builds, and starts a resumed budget from zero.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from layoutlab.device.base import DeviceKind
from layoutlab.engine.base import TuningOptions
from layoutlab.engine.relax.tune.loop import Loop, Report, show, trials_left
from layoutlab.engine.relax.tune.pool import CandidatePool, open_pool
from layoutlab.engine.relax.tune.records import called_functions, trial_times
from layoutlab.engine.relax.tune.task import TaskSearch
from layoutlab.engine.relax.tune.warm import warm_cost_model
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm

PoolOpener = Callable[[DeviceKind, tvm.target.Target, Path, TuningOptions], CandidatePool]


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
    opener: PoolOpener = open_pool,
) -> str:
    """Spend what is left of `options.trials` on the tasks; trials already in the database count.

    Files of candidates are kept in the folder `scratch` while they are needed; what a killed run left there is
    removed.

    On the simulated core (`device_kind` "kryo") times are cycles at its clock. `opener` gives the pool in which
    candidates get their times.

    What is proposed is a function of the options, the tasks, the records in the database and the candidates' times.

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
    searches = [
        TaskSearch(task, target, options, database, cost_model, seed) for task, seed in zip(tasks, seeds, strict=True)
    ]
    for search, times in zip(searches, trial_times(database, [task.dispatched[0] for task in tasks]), strict=True):
        search.resume(times)
        if again:
            search.try_again()
    show(searches, options, report)
    if trials_left(searches, options) <= 0 or not searches:
        return _why_ended(searches, options, ends_at)
    if options.search == "evolutionary" and options.cost_model == "xgb":
        warm_cost_model(cost_model, database, [task.dispatched[0] for task in tasks], target)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        with opener(device_kind, target, scratch, options) as pool:
            Loop(searches, options, pool, report, ends_at).run()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return _why_ended(searches, options, ends_at)


def _cost_model(options: TuningOptions) -> meta_schedule.CostModel | None:
    """The spec's cost model, seeded; None where nothing is ranked, for only the evolutionary search asks it.

    XGBoost has a seed of its own, and repeats itself on one thread only.
    """
    if options.search != "evolutionary":
        return None
    if options.cost_model == "random":
        return meta_schedule.cost_model.RandomModel(seed=options.seed)
    return meta_schedule.CostModel.create(options.cost_model, num_tuning_cores=1)


def _why_ended(searches: Sequence[TaskSearch], options: TuningOptions, ends_at: float) -> str:
    if trials_left(searches, options) <= 0:
        return "budget"
    if time.monotonic() >= ends_at and not all(search.exhausted for search in searches):
        return "time limit"
    return "early stop" if any(search.stopped_early for search in searches) else "nothing left"
