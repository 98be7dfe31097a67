"""Chooses and saves what is tuned: `python -m benchmarks.prepare FOLDER MODEL TASKS TRIALS SEED`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks.plan import Plan, Task, choose, modules_path
from layoutlab.device.host import llvm_target
from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.lower import lower
from layoutlab.engine.relax.tune.tuner import extract_tasks
from layoutlab.engine.relax.tvm_cpu import tvm


def main(folder: Path, model: Path, wanted: str, trials: int, seed: int) -> None:
    """Lower the model in its own layout, for one thread of this machine, and save the chosen tasks and the plan."""
    target = {**llvm_target(), "num-cores": 1}
    built_for = tvm.target.Target(target)
    lowered = lower(canonicalise(import_model(model.read_bytes())), built_for, pack_weights=True)
    extracted = {str(task.task_name): task for task in extract_tasks(lowered, built_for)}
    known = [Task(name=name, ops=int(task.weight), flop=_flop(task)) for name, task in extracted.items()]
    chosen = choose(known, wanted)
    modules = [mod for task in chosen for mod in (extracted[task.name].mod, extracted[task.name].dispatched[0])]
    modules_path(folder).write_text(tvm.ir.save_json(modules))
    Plan(model=model.name, target=target, tasks=tuple(chosen), trials=trials, seed=seed).write(folder)


def _flop(task: Any) -> float:
    return float(tvm.s_tir.analysis.estimate_tir_flops(task.dispatched[0]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
