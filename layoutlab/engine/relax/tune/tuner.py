"""Tuning one variant: the budget spent over its tasks, batch by batch.

MetaSchedule brings the design spaces, the search strategies, the cost model and the database. The loop is ours
because the stock scheduler writes the results of its first round only when every task has had one (minutes in
which an interruption loses all), measures while it builds, and starts a resumed budget from zero.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from layoutlab.device.base import DeviceKind
from layoutlab.engine.base import TuningOptions
from layoutlab.engine.relax.tune.loop import Loop, Report, show, trials_left
from layoutlab.engine.relax.tune.pool import CandidatePool, open_pool
from layoutlab.engine.relax.tune.records import trial_times
from layoutlab.engine.relax.tune.task import TaskSearch
from layoutlab.engine.relax.tune.warm import warm_cost_model
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm

PoolOpener = Callable[[DeviceKind, tvm.target.Target, Path, TuningOptions], CandidatePool]


def extract_tasks(mod: tvm.IRModule, target: tvm.target.Target) -> list[meta_schedule.ExtractedTask]:
    """The distinct functions of a lowered module, each with the number of ops it serves."""
    return meta_schedule.relax_integration.extract_tasks(mod, target)


def tune(
    tasks: Sequence[meta_schedule.ExtractedTask],
    target: tvm.target.Target,
    options: TuningOptions,
    database: meta_schedule.database.Database,
    scratch: Path,
    report: Report,
    device_kind: DeviceKind = "host",
    opener: PoolOpener = open_pool,
) -> None:
    """Spend what is left of `options.trials` on the tasks; trials already in the database count.

    Files of candidates are kept in the folder `scratch` while they are needed; what a killed run left there is
    removed.

    `device_kind` is "host" or "kryo"; on the simulated core times are cycles at its clock. `opener` gives the pool in
    which candidates get their times.

    What is proposed is a function of the options, the tasks, the records in the database and the candidates' times.

    After each batch `report("trials", done=, total=, failed=, tuned=, tasks=, best_us=)` is called; `best_us` is the
    sum of the best times over all ops in microseconds, which is not a latency.
    """
    # MetaSchedule's cost models draw from numpy's global generator, XGBoost's until it was trained.
    np.random.seed(options.seed)
    cost_model = _cost_model(options)
    seeds = meta_schedule.utils.fork_seed(options.seed, n=len(tasks))
    searches = [
        TaskSearch(task, target, options, database, cost_model, seed) for task, seed in zip(tasks, seeds, strict=True)
    ]
    for search, times in zip(searches, trial_times(database, [task.dispatched[0] for task in tasks]), strict=True):
        search.resume(times)
    show(searches, options, report)
    if trials_left(searches, options) <= 0 or not searches:
        return
    if options.cost_model == "xgb":
        warm_cost_model(cost_model, database, [task.dispatched[0] for task in tasks], target)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        with opener(device_kind, target, scratch, options) as pool:
            Loop(searches, options, pool, report).run()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _cost_model(options: TuningOptions) -> meta_schedule.CostModel:
    """The spec's cost model, seeded. XGBoost has a seed of its own, and repeats itself on one thread only."""
    if options.cost_model == "random":
        return meta_schedule.cost_model.RandomModel(seed=options.seed)
    return meta_schedule.CostModel.create(options.cost_model, num_tuning_cores=1)
