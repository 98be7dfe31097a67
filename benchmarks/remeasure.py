"""Counts both tuners' records, and measures their best ones anew, in turns: `python -m benchmarks.remeasure FOLDER`.

The costs in the records come from two runners, minutes apart. Here the best candidate of each tuner for each task is
built again by the same function and measured in the same process, in rounds of a shuffled order; medians count.
Writes `measured.json`.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.plan import OURS, STOCK, Plan, database_paths, modules_path
from layoutlab.device.candidate_timing import random_values
from layoutlab.engine.relax.tune.candidates import build_candidate
from layoutlab.engine.relax.tune.records import open_database
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.records.files import RECORDS, WORKLOADS
from layoutlab.records.lines import FAILED_S

_ROUNDS = 15
_REPEAT_MS = 50

# Seconds of one call.
_Timer = Callable[[], float]


def main(folder: Path) -> None:
    """Measure what the two tuners left in `folder`."""
    plan = Plan.read(folder)
    mods = tvm.ir.load_json(modules_path(folder).read_text())[1::2]
    counted, timers = {}, {}
    for tuner in (OURS, STOCK):
        database = _open(folder, tuner)
        for task, mod in zip(plan.tasks, mods, strict=True):
            records = _records(database, mod)
            counted[tuner, task.name] = _count(records)
            timer = _timer(records, mod, plan.target, folder)
            if timer is not None:
                timers[tuner, task.name] = timer
    medians_s = _in_turns(timers, plan.seed)
    rows = [
        {"tuner": tuner, "task": name, **counts, "best_us": _us(medians_s.get((tuner, name)))}
        for (tuner, name), counts in counted.items()
    ]
    (folder / "measured.json").write_text(json.dumps(rows, indent=1))


def _open(folder: Path, tuner: str) -> meta_schedule.database.Database:
    """A copy of a tuner's records under our names, repaired: one that was ended may have left half a line."""
    copy = folder / f"{tuner}-read"
    copy.mkdir()
    for source, name in zip(database_paths(folder, tuner), (WORKLOADS, RECORDS), strict=True):
        if source.exists():
            shutil.copyfile(source, copy / name)
    return open_database(copy)


def _records(database: meta_schedule.database.Database, mod: tvm.IRModule) -> list[tuple[float, Any]]:
    """(seconds, record) of every trial of one task."""
    if not database.has_workload(mod):
        return []
    workload = database.commit_workload(mod)
    found = [record for record in database.get_all_tuning_records() if record.workload.same_as(workload)]
    return [(statistics.mean(map(float, record.run_secs)), record) for record in found]


def _count(records: list[tuple[float, Any]]) -> dict[str, Any]:
    valid = [seconds for seconds, _ in records if seconds < FAILED_S]
    return {
        "valid": len(valid),
        "failed": len(records) - len(valid),
        "recorded_us": _us(min(valid)) if valid else None,
    }


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6


def _timer(records: list[tuple[float, Any]], mod: tvm.IRModule, target: dict[str, Any], folder: Path) -> _Timer | None:
    """Times the best of the records; None when none is valid."""
    valid = [entry for entry in records if entry[0] < FAILED_S]
    if not valid:
        return None
    _, best = min(valid, key=lambda entry: entry[0])
    schedule = tvm.s_tir.Schedule(mod)
    best.trace.apply_to_schedule(schedule, remove_postproc=False)
    path = folder / f"{uuid.uuid4().hex}.so"
    path.write_bytes(build_candidate(tvm.ir.save_json(schedule.mod), target))
    library = tvm.runtime.load_module(str(path))
    shapes = [info.as_json()[1:] for info in best.args_info]
    device = tvm.cpu()
    tensors = [tvm.runtime.tensor(random_values(str(dtype), tuple(map(int, shape))), device) for dtype, shape in shapes]
    evaluate = library.time_evaluator("main", device, number=1, repeat=1, min_repeat_ms=_REPEAT_MS)
    return lambda: float(evaluate(*tensors).results[0])


def _in_turns(timers: dict[tuple[str, str], _Timer], seed: int) -> dict[tuple[str, str], float]:
    """The median seconds of each, over rounds in which all are measured once."""
    taken: dict[tuple[str, str], list[float]] = {key: [] for key in timers}
    order = list(timers)
    shuffle = random.Random(seed).shuffle
    for number in range(_ROUNDS):
        shuffle(order)
        print(f"measuring the best candidates: round {number + 1} of {_ROUNDS}", file=sys.stderr)
        for key in order:
            taken[key].append(timers[key]())
    return {key: statistics.median(seconds) for key, seconds in taken.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
