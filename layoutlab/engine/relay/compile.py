"""One variant by a Relay-era TVM, from model file to a library that runs without it.

This side decides the layouts, keeps the files and links; everything that needs that TVM happens in its own
interpreter (`inside`). It runs in a worker, which imports our TVM only where a hook has to know a vector's width.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import layoutlab
from layoutlab import hooks
from layoutlab.device.candidate_timing import Timing
from layoutlab.engine.base import (
    DEFAULT_MORE_TRIALS,
    Artifact,
    Census,
    CompileJob,
    ConvReport,
    HookOptions,
    LayoutReport,
    TaskCoverage,
    TuneRequest,
    TuneResult,
    from_json,
    to_json,
)
from layoutlab.engine.relax.tune.select import Choosable, select, skip
from layoutlab.engine.relay.decide import Decision, decide, read_convs, require_change
from layoutlab.engine.relay.executor import candidates
from layoutlab.engine.relay.executor.link import link_artifact
from layoutlab.engine.relay.interpreter import RelayEngine, Report, ask
from layoutlab.engine.relay.trace import make_provenance
from layoutlab.errors import StageError, UsageError
from layoutlab.hooks import Conv
from layoutlab.measure.cores import choose_cores

RUNNER = "relay_artifact"
# AutoTVM's tuner that is nearest to a search of ours, where the spec names none.
_NEAREST_TUNER = {"evolutionary": "xgb", "replay-trace": "random", "random": "random", "grid": "gridsearch"}


@dataclass(frozen=True, kw_only=True)
class _Decided:
    """A variant's convolutions as imported, and what was decided for each after ConvertLayout."""

    imported: Sequence[Conv]
    decisions: Sequence[Decision]


def compile_variant(job: CompileJob, report: Report) -> Artifact:
    """Turn one variant into an artifact, reporting each stage as it begins.

    Writes into `job.folder` what `engine.relax.compile` writes there, AutoTVM's log, and what the library is linked of.
    """
    folder = Path(job.folder)
    decided = _decide(job, report)
    inside = _inside_job(job, decided, chosen=_not_skipped(job, decided, report))
    done = _ask(job, "compile", inside, report)
    engine = RelayEngine(described=done["about"])
    layouts = _layout_report(job, done, decided)
    _write_layouts(folder, layouts)
    report("stage", name="link")
    library = link_artifact(
        folder,
        target=job.target,
        device_kind=job.device_kind,
        inputs=done["inputs"],
        tvm=engine.version,
    )
    return Artifact(
        path=str(library),
        sha256=hashlib.sha256(library.read_bytes()).hexdigest(),
        census_before=layouts.census_before,
        census_after=layouts.census_after,
        tasks=tuple(from_json(TaskCoverage, task) for task in done["tasks"]),
        convs=layouts.convs,
        conv_us=(None,) * len(layouts.convs),
        dequantised=layouts.dequantised,
        tuning_ended=done["ended"],
        tune_s=done["tune_s"],
        build_s=done["build_s"],
        provenance=make_provenance(Path(job.model_path).read_bytes(), done["functions"]),
        runner=RUNNER,
        built_by=engine.line,
    )


def list_tasks(job: CompileJob, report: Report) -> list[TaskCoverage]:
    """The variant's tuning tasks, with what the records in `job.folder` know about them."""
    return _list_tasks(job, _decide(job, report), report)


def tune_variant(job: CompileJob, request: TuneRequest, report: Report) -> TuneResult:
    """Tune a variant, or the tasks of it that are chosen, and leave the results in its records.

    Raises UsageError for a choice that names no task.
    """
    decided = _decide(job, report)
    before = _list_tasks(job, decided, report)
    chosen = _select(request.tasks, before) if request.tasks else _not_skipped(job, decided, report)
    indices = tuple(range(len(before))) if chosen is None else chosen
    trials = job.tuning.trials
    if request.additional:
        more = DEFAULT_MORE_TRIALS * len(indices) if request.trials is None else request.trials
        trials = more + sum(before[index].trials for index in indices)
    tuning = replace(job.tuning, trials=trials)
    inside = _inside_job(replace(job, tuning=tuning), decided, chosen=indices, additional=request.additional)
    done = _ask(job, "tune", inside, report)
    return TuneResult(
        before=tuple(from_json(TaskCoverage, task) for task in done["before"]),
        after=tuple(from_json(TaskCoverage, task) for task in done["tasks"]),
        chosen=indices,
        ended=done["ended"],
        tune_s=done["tune_s"],
    )


def report_layouts(job: CompileJob, report: Report) -> LayoutReport:
    """What the variant does to the layouts, in the module as TVM lowers it, without tuning or building it."""
    decided = _decide(job, report)
    return _layout_report(job, _ask(job, "lay_out", _inside_job(job, decided), report), decided)


def _python(job: CompileJob) -> str:
    if job.engine.python is None:
        raise StageError("start", "the job names no interpreter for its engine")
    return job.engine.python


def _ask(job: CompileJob, verb: str, inside: dict[str, Any], report: Report) -> Any:
    return _ask_with(job, verb, {"job": inside}, report)


def _ask_with(job: CompileJob, verb: str, arguments: dict[str, Any], report: Report) -> Any:
    return ask(_python(job), verb, arguments, folder=Path(job.folder), report=report, tophub=job.engine.tophub)


def _decide(job: CompileJob, report: Report) -> _Decided | None:
    """Ask the hook for every convolution; None where none is asked: without a hook TVM's own decides in the build."""
    if job.hook is None or job.hook.name == "keep":
        return None
    found = _ask_with(job, "convs", {"model": job.model_path, "layout": job.convert_layout}, report)
    imported, converted = read_convs(found["before"]), read_convs(found["after"])
    if len(imported) != len(converted):
        raise StageError("layout", f"ConvertLayout made {len(converted)} convolutions of {len(imported)}")
    hook = make_hook(job.hook, job.target)
    decisions = decide(converted, hook, _before(job))
    require_change(decisions, imported, job.convert_layout, hook)
    return _Decided(imported=imported, decisions=decisions)


def _before(job: CompileJob) -> str:
    """What gave the convolutions their layouts before the hook."""
    return f"convert_layout: {job.convert_layout}" if job.convert_layout else "as imported"


def make_hook(options: HookOptions, target: dict[str, Any]) -> hooks.Hook:
    """The hook with its options; block `auto` is the number of floats in one vector of the target."""
    hook: hooks.Hook
    if options.rules is not None:
        hook = hooks.Table(options.rules)
    elif options.name == "nchwc":
        block = options.block if isinstance(options.block, int) else _vector_floats(target)
        hook = hooks.Nchwc(block, options.pad)
    else:
        hook = hooks.resolve(str(options.name), options.allowed)
    return hook if options.numbers is None else hooks.Numbered(hook, options.numbers)


def _vector_floats(target: dict[str, Any]) -> int:
    from layoutlab.engine.relax.tvm_cpu import tvm
    from layoutlab.engine.relax.vectors import vector_floats

    return vector_floats(tvm.target.Target(target))


def _inside_job(
    job: CompileJob, decided: _Decided | None, chosen: Sequence[int] | None = None, additional: bool = False
) -> dict[str, Any]:
    """The job as `inside.verbs` reads it."""
    threads = int(job.target.get("num-cores", 1))
    logs = [{"source": Path(log).name, "log": log} for log in job.tuning.logs]
    options = {
        **asdict(job.tuning),
        "tune": job.tune,
        "device_kind": job.device_kind,
        "tuner": job.tuning.tuner or _NEAREST_TUNER[job.tuning.search],
        "pricing": None if job.device_kind == "host" else candidates.command(_devices(job, threads), Path(job.folder)),
        "pricing_path": str(Path(layoutlab.__file__).parents[1]),
        "core_numbers": choose_cores(job.tuning.cores, threads) if job.device_kind == "host" else None,
        "threads": threads,
        "chosen": None if chosen is None else list(chosen),
        "additional": additional,
        "borrowed": [*logs, *(asdict(each) for each in job.borrowed)],
    }
    return {
        "model": job.model_path,
        "target": job.target,
        "folder": job.folder,
        "convert_layout": job.convert_layout,
        "decisions": None if decided is None else [decision.to_inside() for decision in decided.decisions],
        "keep": job.hook is not None,
        "passes": asdict(job.tuning.passes),
        "fuse": job.fuse,
        "options": options,
    }


def _devices(job: CompileJob, threads: int) -> candidates.Devices | None:
    """The devices over RPC that candidates are measured on, if the job is for such."""
    if job.rpc is None:
        return None
    tuning = job.tuning
    timing = Timing(repeats=tuning.repeats, min_repeat_ms=tuning.min_repeat_ms, cold_cache=tuning.cold_cache)
    return candidates.Devices(address=job.rpc, target=job.target, timing=timing, cores=tuning.cores, threads=threads)


def _list_tasks(job: CompileJob, decided: _Decided | None, report: Report) -> list[TaskCoverage]:
    return [from_json(TaskCoverage, task) for task in _ask(job, "list_tasks", _inside_job(job, decided), report)]


def _not_skipped(job: CompileJob, decided: _Decided | None, report: Report) -> tuple[int, ...] | None:
    """Indices of the tasks that the spec does not skip; None for all, which need not be listed for it."""
    if not (job.tune and job.tuning.skip):
        return None
    tasks = _list_tasks(job, decided, report)
    choosable = _choosable(tasks)
    try:
        skipped = skip(job.tuning.skip, choosable, [])
    except UsageError as error:
        raise StageError("tune", f"tuning.skip: {error}") from None
    return tuple(index for index in range(len(tasks)) if index not in skipped)


def _select(text: str, tasks: Sequence[TaskCoverage]) -> tuple[int, ...]:
    return select(text, _choosable(tasks))


def _choosable(tasks: Sequence[TaskCoverage]) -> list[Choosable]:
    return [Choosable(name=task.name, kind=task.kind or task.name) for task in tasks]


def _layout_report(job: CompileJob, done: dict[str, Any], decided: _Decided | None) -> LayoutReport:
    if decided is None:
        imported = read_convs(done["convs_before"])
        hook = None if job.hook is None else hooks.keep
        decided = _Decided(imported=imported, decisions=decide(imported, hook, _before(job)))
    after = done["layouts_after"]
    if len(after) != len(decided.imported):
        after = ["unknown"] * len(decided.imported)
    return LayoutReport(
        census_before=from_json(Census, done["census_before"]),
        census_after=from_json(Census, done["census_after"]),
        convs=_in_order(
            ConvReport(
                conv=conv,
                before=str(conv.layout),
                answer=None if decision.answer is None else str(decision.answer),
                after=layout,
                why=decision.why if job.hook else f"{decision.why}; TVM's own hook",
            )
            for conv, decision, layout in zip(decided.imported, decided.decisions, after, strict=True)
        ),
        ir_before=done["ir_before"],
        ir_after=done["ir_after"],
        dequantised=False,
    )


def _in_order(reports: Iterable[ConvReport]) -> tuple[ConvReport, ...]:
    """In the model's order, which need not be that in which TVM visits them."""
    return tuple(sorted(reports, key=lambda report: report.conv.index))


def _write_layouts(folder: Path, layouts: LayoutReport) -> None:
    (folder / "imported.txt").write_text(layouts.ir_before)
    (folder / "converted.txt").write_text(layouts.ir_after)
    (folder / "layouts.json").write_text(json.dumps(to_json(layouts)["convs"], indent=1))
