"""One variant, from model file to shared library: import, layout, lower, tune, build."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path

from layoutlab import hooks
from layoutlab.engine.base import Artifact, CompileJob, TaskCoverage, to_json
from layoutlab.engine.relax.build import apply_records, build_library
from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.layout.census import take_census
from layoutlab.engine.relax.layout.convert import apply_plan, require_change
from layoutlab.engine.relax.layout.plan import Decision, plan
from layoutlab.engine.relax.lower import lower
from layoutlab.engine.relax.tune.records import coverage, open_database
from layoutlab.engine.relax.tune.tuner import extract_tasks, tune
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm

Report = Callable[..., None]


def compile_variant(job: CompileJob, report: Report) -> Artifact:
    """Turn one variant into an artifact, reporting each stage as it begins.

    Writes into `job.folder`: `imported.txt` and `converted.txt` (Relax text before and after the layout change),
    `layouts.json` (what was asked for and done, conv by conv), the tuning records, and the library.
    """
    folder = Path(job.folder)
    target = tvm.target.Target(job.target)
    report("stage", name="import")
    imported = canonicalise(import_model(Path(job.model_path).read_bytes()))
    report("stage", name="layout")
    decisions, converted = change_layout(imported, job)
    _write_ir(folder, imported, converted, decisions)
    report("stage", name="lower")
    lowered = lower(converted, target, job.tuning.pack_weights)
    database, tasks, tune_s = _tune(lowered, target, job, report)
    report("stage", name="build")
    started = time.monotonic()
    library = folder / "variant.so"
    built = apply_records(lowered, target, database, job.tuning.pack_weights, _best(tasks))
    build_library(built, target, str(library))
    return Artifact(
        path=str(library),
        sha256=hashlib.sha256(library.read_bytes()).hexdigest(),
        census_before=take_census(imported),
        census_after=take_census(converted),
        tasks=tuple(tasks),
        tune_s=tune_s,
        build_s=time.monotonic() - started,
    )


def change_layout(imported: tvm.IRModule, job: CompileJob) -> tuple[list[Decision], tvm.IRModule]:
    """Plan and apply the variant's layouts; see `plan` and `apply_plan` for what can fail."""
    hook = hooks.resolve(job.hook, job.block) if job.hook is not None else None
    decisions = plan(imported, job.convert_layout, hook)
    require_change(decisions, job.convert_layout, job.hook)
    return decisions, apply_plan(imported, decisions)


def _tune(
    lowered: tvm.IRModule, target: tvm.target.Target, job: CompileJob, report: Report
) -> tuple[meta_schedule.database.Database, list[TaskCoverage], float]:
    tasks = extract_tasks(lowered, target)
    if not job.tune:
        database = meta_schedule.database.MemoryDatabase()
        return database, coverage(database, tasks), 0.0
    report("stage", name="tune")
    started = time.monotonic()
    database = open_database(Path(job.folder))
    tune(tasks, target, job.tuning, database, report)
    return database, coverage(database, tasks), time.monotonic() - started


def _best(tasks: list[TaskCoverage]) -> int:
    return sum(task.best_us is not None for task in tasks)


def _write_ir(folder: Path, imported: tvm.IRModule, converted: tvm.IRModule, decisions: list[Decision]) -> None:
    for name, mod in (("imported", imported), ("converted", converted)):
        (folder / f"{name}.txt").write_text(mod["main"].without_attr("params").script(show_meta=False))
    rows = [{"conv": to_json(d.conv), "answer": d.answer and str(d.answer), "layout": str(d.layout)} for d in decisions]
    (folder / "layouts.json").write_text(json.dumps(rows, indent=1))
