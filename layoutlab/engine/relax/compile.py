"""One variant, from model file to shared library: import, layout, lower, tune, build."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from layoutlab import hooks
from layoutlab.engine.base import (
    DEFAULT_MORE_TRIALS,
    Artifact,
    CompileJob,
    ConvReport,
    HookOptions,
    LayoutReport,
    SharedTask,
    TaskCoverage,
    TuneRequest,
    TuneResult,
    TuningOptions,
    to_json,
)
from layoutlab.engine.relax.build import apply_records, build_library
from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.layout.census import holds, take_census
from layoutlab.engine.relax.layout.convert import apply_plan, require_change
from layoutlab.engine.relax.layout.plan import Decision, plan
from layoutlab.engine.relax.lower import lower
from layoutlab.engine.relax.passes import pass_context, require_known
from layoutlab.engine.relax.provenance.trace import trace
from layoutlab.engine.relax.tune.borrow import borrow
from layoutlab.engine.relax.tune.coverage import coverage, with_only_schedules
from layoutlab.engine.relax.tune.kinds import KINDS, task_kind
from layoutlab.engine.relax.tune.pool import open_pool
from layoutlab.engine.relax.tune.records import conv_times_us, open_database
from layoutlab.engine.relax.tune.select import Choosable, select, skip
from layoutlab.engine.relax.tune.shared import shared_tasks
from layoutlab.engine.relax.tune.tuner import PoolOpener, extract_tasks, tune
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.engine.relax.vectors import vector_floats
from layoutlab.errors import StageError, UsageError
from layoutlab.hook_limit import Limited, limited

Report = Callable[..., None]


def compile_variant(job: CompileJob, report: Report) -> Artifact:
    """Turn one variant into an artifact, reporting each stage as it begins.

    Writes into `job.folder`: `imported.txt` and `converted.txt` (Relax text before and after the layout change),
    `layouts.json` (what was asked for and done, conv by conv), the tuning records, and the library.
    """
    folder = Path(job.folder)
    target = tvm.target.Target(job.target)
    lowered, layouts = _lower(job, target, report)
    _write_layouts(folder, layouts)
    tasks = extract_tasks(lowered, target)
    database, covered, ended, tune_s = _tune(tasks, target, job, report)
    report("stage", name="build")
    started = time.monotonic()
    library = folder / "variant.so"
    lookup, covered = borrow(database, job.borrowed, tasks, covered, target)
    schedules, expected = with_only_schedules(lookup, tasks, covered)
    with pass_context(job.tuning.passes):
        built, hits = apply_records(lowered, target, schedules, job.tuning.pack_weights, expected)
        build_library(built, target, str(library), job.device_kind)
        provenance = trace(built, Path(job.model_path).read_bytes(), lowered, tasks)
    return Artifact(
        path=str(library),
        sha256=hashlib.sha256(library.read_bytes()).hexdigest(),
        census_before=layouts.census_before,
        census_after=layouts.census_after,
        tasks=tuple(replace(task, hit=task.name in hits) for task in covered),
        convs=layouts.convs,
        dequantised=layouts.dequantised,
        conv_us=tuple(conv_times_us(database, lowered)),
        tuning_ended=ended,
        tune_s=tune_s,
        build_s=time.monotonic() - started,
        provenance=provenance,
    )


def list_tasks(job: CompileJob, report: Report) -> list[TaskCoverage]:
    """The variant's tuning tasks in execution order, with what the records in `job.folder` know about them."""
    target = tvm.target.Target(job.target)
    lowered, _ = _lower(job, target, report)
    tasks = extract_tasks(lowered, target)
    return coverage(open_records(job), tasks, tune=job.tune)


def find_shared(job: CompileJob, others: Path, report: Report) -> tuple[SharedTask, ...]:
    """The variant's tuning tasks that the records in `others` are of too; see `tune.shared`."""
    target = tvm.target.Target(job.target)
    lowered, _ = _lower(job, target, report)
    return shared_tasks(extract_tasks(lowered, target), Path(job.folder), others)


def tune_variant(job: CompileJob, request: TuneRequest, report: Report) -> TuneResult:
    """Tune a variant, or the tasks of it that are chosen, and leave the results in its records.

    Raises UsageError for a choice that names no task.
    """
    target = tvm.target.Target(job.target)
    lowered, _ = _lower(job, target, report)
    report("stage", name="tune")
    started = time.monotonic()
    tasks = extract_tasks(lowered, target)
    chosen = not_skipped(tasks, job.tuning) if request.tasks is None else select(request.tasks, choosable(tasks))
    database = open_database(Path(job.folder))
    before = coverage(database, tasks)
    trials = job.tuning.trials
    if request.additional:
        more = DEFAULT_MORE_TRIALS * len(chosen) if request.trials is None else request.trials
        trials = more + sum(before[index].trials for index in chosen)
    ended = tune(
        [tasks[index] for index in chosen],
        target,
        replace(job.tuning, trials=trials),
        database,
        Path(job.folder) / "candidates",
        report,
        job.device_kind,
        again=request.additional,
        opener=pool_opener(job, report),
    )
    return TuneResult(
        before=tuple(before),
        after=tuple(coverage(database, tasks)),
        chosen=chosen,
        ended=ended,
        tune_s=time.monotonic() - started,
    )


def _lower(job: CompileJob, target: tvm.target.Target, report: Report) -> tuple[tvm.IRModule, LayoutReport]:
    converted, layouts = lay_out(job, report)
    report("stage", name="lower")
    require_known(job.tuning.passes)
    with pass_context(job.tuning.passes):
        return lower(converted, target, job.tuning.pack_weights, job.fuse), layouts


def report_layouts(job: CompileJob, report: Report) -> LayoutReport:
    """What the variant does to the layouts, without tuning or building it."""
    return lay_out(job, report)[1]


def lay_out(job: CompileJob, report: Report) -> tuple[tvm.IRModule, LayoutReport]:
    """Import the model and give each convolution its layout; see `plan` and `apply_plan` for what can fail."""
    report("stage", name="import")
    imported = canonicalise(import_model(Path(job.model_path).read_bytes()))
    report("stage", name="layout")
    hook = None if job.hook is None else _limited_hook(job.hook, tvm.target.Target(job.target), report)
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
        return _numbered(hooks.Table(options.rules), options)
    if options.name != "nchwc":
        return _numbered(hooks.resolve(str(options.name), options.allowed), options)
    block = options.block if isinstance(options.block, int) else vector_floats(target)
    return hooks.Nchwc(block, options.pad)


def _limited_hook(options: HookOptions, target: tvm.target.Target, report: Report) -> hooks.Hook:
    """The hook; when it is the user's code, whoever waits for it knows for how long."""
    with limited(report, "the hook's module was not imported"):
        hook = make_hook(options, target)
    return hook if hooks.is_built_in(hook) else Limited(hook, report)


def _numbered(hook: hooks.Hook, options: HookOptions) -> hooks.Hook:
    return hook if options.numbers is None else hooks.Numbered(hook, options.numbers)


def _tune(
    tasks: Sequence[meta_schedule.ExtractedTask], target: tvm.target.Target, job: CompileJob, report: Report
) -> tuple[meta_schedule.database.Database, list[TaskCoverage], str | None, float]:
    database = open_records(job)
    if not job.tune:
        return database, coverage(database, tasks, tune=False), None, 0.0
    report("stage", name="tune")
    started = time.monotonic()
    chosen = not_skipped(tasks, job.tuning)
    scratch = Path(job.folder) / "candidates"
    ended = tune(
        [tasks[index] for index in chosen],
        target,
        job.tuning,
        database,
        scratch,
        report,
        job.device_kind,
        opener=pool_opener(job, report),
    )
    skipped = frozenset(range(len(tasks))).difference(chosen)
    return database, coverage(database, tasks, skipped=skipped), ended, time.monotonic() - started


def pool_opener(job: CompileJob, report: Report) -> PoolOpener:
    """Who gives the candidates their times: for devices over RPC a pool that knows where they are."""
    address = job.rpc
    if address is None:
        return open_pool
    from layoutlab.engine.relax.tune.rpc_pool import RpcPool

    return lambda kind, target, folder, options: RpcPool(
        target, folder, options, address, lambda text: report("say", text=text)
    )


def open_records(job: CompileJob) -> meta_schedule.database.Database:
    """The variant's own records, none for one that is not tuned."""
    return open_database(Path(job.folder)) if job.tune else meta_schedule.database.MemoryDatabase()


def not_skipped(tasks: Sequence[meta_schedule.ExtractedTask], options: TuningOptions) -> tuple[int, ...]:
    """Indices of the tasks that the spec does not skip."""
    if not options.skip:
        return tuple(range(len(tasks)))
    try:
        skipped = skip(options.skip, choosable(tasks), KINDS)
    except UsageError as error:
        raise StageError("tune", f"tuning.skip: {error}") from None
    return tuple(index for index in range(len(tasks)) if index not in skipped)


def choosable(tasks: Sequence[meta_schedule.ExtractedTask]) -> list[Choosable]:
    """What the tasks can be chosen by."""
    return [Choosable(name=str(task.task_name), kind=task_kind(task.dispatched[0]["main"])[0]) for task in tasks]


def _write_layouts(folder: Path, layouts: LayoutReport) -> None:
    (folder / "imported.txt").write_text(layouts.ir_before, encoding="utf-8")
    (folder / "converted.txt").write_text(layouts.ir_after, encoding="utf-8")
    rows = to_json(layouts)["convs"]
    (folder / "layouts.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
