"""MetaSchedule as TVM ships it, in a process of its own: `python -m benchmarks.tune_stock FOLDER`.

Nothing of layoutlab may be imported here: it leaves out TVM's GPU intrinsics, which stock MetaSchedule waits for.
Every setting but trials and seed is the default of `tune_relax`: 64 trials an iteration, LocalBuilder and LocalRunner,
XGBoost, evolutionary search, gradient scheduler.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tvm
from tvm.s_tir import meta_schedule
from tvm.s_tir.meta_schedule.relax_integration import extracted_tasks_to_tune_contexts

from benchmarks.plan import STOCK, Plan, modules_path


def main(folder: Path) -> None:
    """Tune what the plan says; records go to MetaSchedule's own database in `FOLDER/stock`."""
    plan = Plan.read(folder)
    target = tvm.target.Target(plan.target)
    modules = tvm.ir.load_json(modules_path(folder).read_text())
    tasks = [
        meta_schedule.ExtractedTask(task.name, modules[2 * number], target, [modules[2 * number + 1]], task.ops)
        for number, task in enumerate(plan.tasks)
    ]
    work_dir = str(folder / STOCK)
    contexts, weights = extracted_tasks_to_tune_contexts(tasks, work_dir, seed=plan.seed)
    meta_schedule.tune_tasks(tasks=contexts, task_weights=weights, work_dir=work_dir, max_trials_global=plan.trials)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
