"""layoutlab's tuner on the same tasks, in a process of its own: `python -m benchmarks.tune_ours FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.plan import OURS, Plan, modules_path
from layoutlab.engine.base import TuningOptions
from layoutlab.engine.relax.tune.records import open_database
from layoutlab.engine.relax.tune.tuner import tune
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.spec.models import TuningSpec


def main(folder: Path) -> None:
    """Tune what the plan says with the defaults of a spec; records go to `FOLDER/layoutlab`."""
    plan = Plan.read(folder)
    target = tvm.target.Target(plan.target)
    modules = tvm.ir.load_json(modules_path(folder).read_text())
    tasks = [
        meta_schedule.ExtractedTask(task.name, modules[2 * number], target, [modules[2 * number + 1]], task.ops)
        for number, task in enumerate(plan.tasks)
    ]
    options = TuningOptions(**TuningSpec(trials=plan.trials, seed=plan.seed).model_dump())
    database = open_database(folder / OURS)
    tune(tasks, target, options, database, folder / OURS / "candidates", lambda event, **fields: None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
