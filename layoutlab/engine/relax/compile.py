"""One variant, from model file to shared library: import, layout, lower, tune, build."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path

from layoutlab import hooks
from layoutlab.engine.base import (
    Artifact,
    CompileJob,
    ConvReport,
    HookOptions,
    LayoutReport,
    TaskCoverage,
    to_json,
)
from layoutlab.engine.relax.build import apply_records, build_library
from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.layout.census import holds, take_census
from layoutlab.engine.relax.layout.convert import apply_plan, require_change
from layoutlab.engine.relax.layout.plan import Decision, plan
from layoutlab.engine.relax.lower import lower
from layoutlab.engine.relax.tune.borrow import borrow
from layoutlab.engine.relax.tune.records import conv_times_us, coverage, open_database
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
    converted, layouts = lay_out(job, report)
    _write_layouts(folder, layouts)
    report("stage", name="lower")
    lowered = lower(converted, target, job.tuning.pack_weights)
    extracted = extract_tasks(lowered, target)
    database, covered, tune_s = _tune(extracted, target, job, report)
    report("stage", name="build")
    started = time.monotonic()
    library = folder / "variant.so"
    lookup, tasks = borrow(database, job.borrowed, extracted, covered, target)
    built = apply_records(lowered, target, lookup, job.tuning.pack_weights, _best(tasks))
    build_library(built, target, str(library), job.device_kind)
    return Artifact(
        path=str(library),
        sha256=hashlib.sha256(library.read_bytes()).hexdigest(),
        census_before=layouts.census_before,
        census_after=layouts.census_after,
        tasks=tuple(tasks),
        convs=layouts.convs,
        dequantised=layouts.dequantised,
        conv_us=tuple(conv_times_us(database, lowered)),
        tune_s=tune_s,
        build_s=time.monotonic() - started,
    )


def lay_out(job: CompileJob, report: Report) -> tuple[tvm.IRModule, LayoutReport]:
    """Import the model and give each convolution its layout; see `plan` and `apply_plan` for what can fail."""
    report("stage", name="import")
    imported = canonicalise(import_model(Path(job.model_path).read_bytes()))
    report("stage", name="layout")
    hook = None if job.hook is None else make_hook(job.hook, tvm.target.Target(job.target))
    decisions = plan(imported, job.convert_layout, hook)
    require_change(decisions, job.convert_layout, hook)
    converted, transforms = apply_plan(imported, decisions)
    return converted, LayoutReport(
        census_before=take_census(imported),
        census_after=take_census(converted, transforms),
        convs=tuple(_conv_report(decision) for decision in decisions),
        ir_before=_text(imported),
        ir_after=_text(converted),
        dequantised=holds(imported, "dequantize"),
    )


def _conv_report(decision: Decision) -> ConvReport:
    return ConvReport(
        conv=decision.conv,
        before=str(decision.conv.layout),
        answer=None if decision.answer is None else str(decision.answer),
        after=str(decision.layout),
        why=decision.why,
    )


def _text(mod: tvm.IRModule) -> str:
    return str(mod["main"].without_attr("params").script(show_meta=False))


def make_hook(options: HookOptions, target: tvm.target.Target) -> hooks.Hook:
    """The hook with its options; block `auto` is the number of floats in one vector of the target."""
    if options.rules is not None:
        return hooks.Table(options.rules)
    if options.name != "nchwc":
        return hooks.resolve(str(options.name), options.allowed)
    block = options.block if isinstance(options.block, int) else vector_floats(target)
    return hooks.Nchwc(block, options.pad)


def vector_floats(target: tvm.target.Target) -> int:
    """The number of float32 in one vector of the target: 16 with AVX-512, 8 with AVX, 4 with NEON, SSE and others.

    From LLVM's features: TVM 0.27's own `llvm_get_vector_width` says 512 bits of every x86 CPU.
    """
    for feature, floats in (("avx512f", 16), ("avx", 8)):
        if tvm.target.codegen.llvm_cpu_has_features(feature, target):
            return floats
    return 4


def _tune(
    tasks: list[meta_schedule.ExtractedTask], target: tvm.target.Target, job: CompileJob, report: Report
) -> tuple[meta_schedule.database.Database, list[TaskCoverage], float]:
    if not job.tune:
        database = meta_schedule.database.MemoryDatabase()
        return database, coverage(database, tasks), 0.0
    report("stage", name="tune")
    started = time.monotonic()
    database = open_database(Path(job.folder))
    tune(tasks, target, job.tuning, database, Path(job.folder) / "candidates", report, job.device_kind)
    return database, coverage(database, tasks), time.monotonic() - started


def _best(tasks: list[TaskCoverage]) -> int:
    """Tasks that the build has a record for."""
    return sum(task.best_us is not None or task.borrowed is not None for task in tasks)


def _write_layouts(folder: Path, layouts: LayoutReport) -> None:
    (folder / "imported.txt").write_text(layouts.ir_before)
    (folder / "converted.txt").write_text(layouts.ir_after)
    rows = to_json(layouts)["convs"]
    (folder / "layouts.json").write_text(json.dumps(rows, indent=1))
