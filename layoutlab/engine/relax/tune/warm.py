"""What a cost model learns from the trials of earlier runs before a tuning goes on."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from layoutlab.engine.relax.tune.records import FAILED_S
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm

_LOGGER = logging.getLogger("layoutlab.tuning")
# A trace takes 30 to 60 ms to be applied and described, and XGBoost trains some twenty times: half a minute in all.
_MOST_RECORDS = 256


def warm_cost_model(
    cost_model: meta_schedule.CostModel,
    database: meta_schedule.database.Database,
    workloads: Sequence[tvm.IRModule],
    target: tvm.target.Target,
) -> None:
    """Let the cost model learn from records in the database, of each workload as many, fast ones and slow ones.

    The same records teach the same, whichever runs they are from.
    """
    records = database.get_all_tuning_records()  # the fastest first
    for mod in workloads:
        if not database.has_workload(mod):
            continue
        workload = database.commit_workload(mod)
        own = [record for record in records if record.workload.same_as(workload)]
        step = math.ceil(len(own) * len(workloads) / _MOST_RECORDS)
        _teach(cost_model, own[:: max(1, step)], mod, target)


def _teach(
    cost_model: meta_schedule.CostModel,
    records: Sequence[meta_schedule.database.TuningRecord],
    mod: tvm.IRModule,
    target: tvm.target.Target,
) -> None:
    candidates, results = [], []
    for record in records:
        try:
            candidates.append(record.as_measure_candidate())
        except Exception as error:  # the search leaves such records out as well
            _LOGGER.warning("a record cannot be applied any more: %s", error)
            continue
        seconds = [float(time) for time in record.run_secs or [FAILED_S]]
        failed = min(seconds) >= FAILED_S
        results.append(meta_schedule.runner.RunnerResult(None if failed else seconds, "failed" if failed else None))
    if candidates:
        cost_model.update(meta_schedule.TuneContext(mod=mod, target=target, num_threads=1), candidates, results)
