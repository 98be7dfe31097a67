"""Experiments with single functions of a built variant: alone, cold, tuned anew, and taken apart."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tvm.relax import Call

from layoutlab.engine.base import CompileJob, TaskCoverage, TuningOptions
from layoutlab.engine.explanation import ExplainRequest, FunctionExperiments, Part, Timed
from layoutlab.engine.relax.build import apply_records
from layoutlab.engine.relax.compile import Report, lay_out, not_skipped, open_records, pool_opener
from layoutlab.engine.relax.lower import finish, legalise
from layoutlab.engine.relax.passes import pass_context
from layoutlab.engine.relax.provenance.marks import (
    LAYOUT,
    TASK,
    Marks,
    bindings_of,
    marks_by_variable,
    marks_of,
    with_marks,
)
from layoutlab.engine.relax.tune.borrow import borrow
from layoutlab.engine.relax.tune.coverage import coverage, with_only_schedules
from layoutlab.engine.relax.tune.records import open_lent
from layoutlab.engine.relax.tune.space import space_of
from layoutlab.engine.relax.tune.tuner import PoolOpener, extract_tasks
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.errors import StageError

# A mark with this before it is the number of a call before fusing; see `provenance.marks`.
_PART = "#"
# How experiments are timed that are not the tuner's: many short repeats, for within long ones a busy machine is
# interrupted, and what they are compared with, the functions of an inference, is timed call by call.
_REPEATS = 25
_MIN_REPEAT_MS = 2
# What TVM notes at a block that stores weights as a schedule wants them.
_PREPARES = "meta_schedule.layout_rewrite_preproc"


def explain(job: CompileJob, request: ExplainRequest, report: Report) -> tuple[FunctionExperiments, ...]:
    """Make the experiments with each function that is asked for, where the job's candidates are measured.

    The variant is made again from its records, just as it was built. What fails in an experiment costs its result
    only. Raises StageError("explain") when the library was built of something else.
    """
    target = tvm.target.Target(job.target)
    variant = _again(job, request, target, report)
    report("stage", name="explain")
    bench = _Bench(job, variant.lookup, target)
    wanted = [_Wanted(variant, name, job) for name in request.functions]
    for function in wanted:
        function.ask(bench)
    results = bench.run(pool_opener(job, report))
    return tuple(function.answer(results) for function in wanted)


@dataclass(frozen=True, kw_only=True)
class _Call:
    """The first call of a function of the library: its code, the task's function, and the numbers of its parts."""

    function: tvm.tirx.PrimFunc
    lowered: str
    parts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Variant:
    """A variant as it was built, and what it was made of.

    `parts` has the functions before fusing with the marks of their calls, by number. `lookup` are the records.
    """

    calls: Mapping[str, _Call]
    lowered: tvm.IRModule
    parts: Mapping[str, tuple[str, tvm.tirx.PrimFunc, Marks]]
    lookup: meta_schedule.database.Database


def _again(job: CompileJob, request: ExplainRequest, target: tvm.target.Target, report: Report) -> _Variant:
    converted, _ = lay_out(job, report)
    report("stage", name="lower")
    with pass_context(job.tuning.passes):
        single = _numbered(legalise(converted, target))
        unfused = finish(single, target, job.tuning.pack_weights, fuse=False)
        lowered = finish(single, target, job.tuning.pack_weights, job.fuse)
        tasks = extract_tasks(lowered, target)
        database = open_records(job)
        skipped = frozenset(range(len(tasks))).difference(not_skipped(tasks, job.tuning))
        covered = coverage(database, tasks, tune=job.tune, skipped=skipped)
        _require_unchanged(covered, request.promised_us)
        lookup, covered = borrow(database, job.borrowed, tasks, covered, target)
        schedules, expected = with_only_schedules(lookup, tasks, covered)
        built, _ = apply_records(lowered, target, schedules, job.tuning.pack_weights, expected)
    lent = [open_lent(Path(folder)) for folder in request.unfused_records]
    return _Variant(
        calls=_calls(built),
        lowered=lowered,
        parts=_parts(unfused),
        lookup=meta_schedule.database.OrderedUnionDatabase(schedules, *lent),
    )


def _require_unchanged(covered: Sequence[TaskCoverage], promised_us: Mapping[str, float | None]) -> None:
    now = {task.name: task.best_us for task in covered}
    changed = [name for name, us in promised_us.items() if now.get(name) != us]
    if changed:
        raise StageError(
            "explain",
            f"the best records of {len(changed)} tasks are not those that the library was built with "
            f"({', '.join(changed[:3])}): run the spec again, then explain",
        )


def _numbered(single: tvm.IRModule) -> tvm.IRModule:
    """The module before fusing, each call marked with its number."""
    calls = marks_by_variable(single)
    return with_marks(
        single, {variable: (*marks, f"{_PART}{number}") for number, (variable, marks) in enumerate(calls.items())}
    )


def _parts(unfused: tvm.IRModule) -> dict[str, tuple[str, tvm.tirx.PrimFunc, Marks]]:
    found = {}
    for name, call in _called(unfused):
        for mark in marks_of(call):
            if mark.startswith(_PART):
                found[mark] = (name, unfused[name], marks_of(call))
    return found


def _calls(built: tvm.IRModule) -> dict[str, _Call]:
    found: dict[str, _Call] = {}
    for name, call in _called(built):
        marks = marks_of(call)
        task = next((mark.removeprefix(TASK) for mark in marks if mark.startswith(TASK)), name)
        parts = tuple(mark for mark in marks if mark.startswith(_PART))
        found.setdefault(name, _Call(function=built[name], lowered=task, parts=parts))
    return found


def _called(mod: tvm.IRModule) -> Iterator[tuple[str, Call]]:
    """The calls of TIR functions in `main`, in execution order, each with the function's name."""
    for binding in bindings_of(mod["main"]):
        call = binding.value
        if isinstance(call, Call) and call.args and isinstance(call.args[0], tvm.ir.GlobalVar):
            yield str(call.args[0].name_hint), call


class _Bench:
    """Collects what is to be measured, each thing once, and measures it with the tuner's own pools."""

    def __init__(self, job: CompileJob, lookup: meta_schedule.database.Database, target: tvm.target.Target) -> None:
        self.target, self._lookup, self._folder = target, lookup, Path(job.folder) / "explain"
        self.simulated = job.device_kind == "kryo"
        self.as_tuned = job.tuning
        self.warm = replace(job.tuning, cold_cache=False, repeats=_REPEATS, min_repeat_ms=_MIN_REPEAT_MS)
        self.cold = replace(self.warm, cold_cache=True)
        self._device_kind = job.device_kind
        self._asked: dict[TuningOptions, dict[str, meta_schedule.MeasureCandidate]] = {}

    def scheduled(self, function: tvm.tirx.PrimFunc) -> tvm.s_tir.Schedule | None:
        """The function as its best record schedules it; None without a record."""
        return self._lookup.query_schedule(_module(function), self.target, "main")

    def ask(self, options: TuningOptions, name: str, schedule: tvm.s_tir.Schedule) -> None:
        """Have a schedule measured in this way; what has the same name is the same."""
        candidate = meta_schedule.MeasureCandidate(schedule, _arguments(schedule.mod))
        self._asked.setdefault(options, {}).setdefault(name, candidate)

    def run(self, opener: PoolOpener) -> dict[tuple[TuningOptions, str], Timed]:
        """What came of everything that was asked for."""
        found: dict[tuple[TuningOptions, str], Timed] = {}
        for options, candidates in self._asked.items():
            with _emptied(self._folder), opener(self._device_kind, self.target, self._folder, options) as pool:
                outcomes = pool.submit(list(candidates.values()))()
            for name, outcome in zip(candidates, outcomes, strict=True):
                us = None if outcome.seconds is None else outcome.seconds * 1e6
                found[options, name] = Timed(us=us, failed=outcome.error)
        return found


@contextmanager
def _emptied(folder: Path) -> Iterator[None]:
    """The folder, new and empty, and gone afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Wanted:
    """One function, and the experiments with it."""

    def __init__(self, variant: _Variant, name: str, job: CompileJob) -> None:
        if name not in variant.calls:
            raise StageError(
                "explain", f"the library has a function {name}, and its spec and records make none now: run it again"
            )
        self._name, self._call = name, variant.calls[name]
        self._task = variant.lowered[self._call.lowered]
        # A function of one part has nothing to take apart, but a transform is told from it all the same.
        self._parts = [variant.parts[number] for number in self._call.parts if number in variant.parts]
        self._ways: dict[str, tuple[TuningOptions, str]] = {}
        self._tuned: dict[str, bool] = {}
        self._like_record: bool | None = None

    def ask(self, bench: _Bench) -> None:
        built = tvm.s_tir.Schedule(_module(self._call.function))
        if not bench.simulated:
            self._ask(bench, "warm", bench.warm, self._name, built)
        self._ask(bench, "cold", bench.as_tuned if bench.simulated else bench.cold, self._name, built)
        record = bench.scheduled(self._task)
        if record is not None:
            self._ask(bench, "again", bench.as_tuned, f"record of {self._call.lowered}", record)
            self._like_record = _blocks(record) == _blocks(built)
        for name, function, _ in self._parts:
            schedule = bench.scheduled(function)
            self._tuned[name] = schedule is not None or space_of(_module(function), bench.target) == 1
            way = bench.as_tuned if bench.simulated else bench.warm
            self._ask(bench, f"part {name}", way, f"part {name}", schedule or tvm.s_tir.Schedule(_module(function)))

    def _ask(self, bench: _Bench, what: str, options: TuningOptions, name: str, schedule: tvm.s_tir.Schedule) -> None:
        bench.ask(options, name, schedule)
        self._ways[what] = (options, name)

    def answer(self, results: Mapping[tuple[TuningOptions, str], Timed]) -> FunctionExperiments:
        found = {what: results[way] for what, way in self._ways.items()}
        return FunctionExperiments(
            function=self._name,
            warm=found.get("warm"),
            cold=found.get("cold"),
            again=found.get("again"),
            parts=tuple(
                Part(
                    function=name,
                    transforms=_transforms(marks),
                    tuned=self._tuned[name],
                    timed=found[f"part {name}"],
                )
                for name, _, marks in self._parts
            ),
            like_record=self._like_record,
        )


def _transforms(marks: Marks) -> tuple[str, ...]:
    return tuple(mark for mark in marks if not mark.isdecimal() and not mark.startswith((LAYOUT, TASK, _PART)))


def _module(function: tvm.tirx.PrimFunc) -> tvm.IRModule:
    """The function as MetaSchedule has its workloads: the only one of a module, `main`."""
    return tvm.get_global_func("tvm.s_tir.meta_schedule.normalize_mod")(function)


def _arguments(mod: tvm.IRModule) -> list[meta_schedule.arg_info.ArgInfo]:
    return list(meta_schedule.arg_info.ArgInfo.from_entry_func(mod, remove_preproc=True))


def _blocks(schedule: tvm.s_tir.Schedule) -> list[str]:
    """Names of what a function computes, without what only moves weights to where the schedule reads them."""
    blocks = [schedule.get(block) for block in schedule.get_child_blocks(schedule.get_sblock("root"))]
    return sorted(str(block.name_hint) for block in blocks if _PREPARES not in block.annotations)
