"""`layoutlab op`: one operator of a spec's model, measured in each layout, tuned, and its records put back."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from layoutlab.alone.choose import (
    built_variants,
    conv_numbers,
    fitting_variants,
    fused_with,
    needs_numbers,
    require_op,
    tuned_variants,
)
from layoutlab.alone.derive import derive, name_alone
from layoutlab.alone.exchange import adopt_records, records_folder
from layoutlab.begin import Run, begin
from layoutlab.compiling import find_variant_records
from layoutlab.engine.base import from_json
from layoutlab.engine.provenance import Operator
from layoutlab.errors import LayoutlabError
from layoutlab.experiment import run_experiment
from layoutlab.model.ask import ask_about
from layoutlab.model.resolve import resolve_model
from layoutlab.profiling import Profile, profile_spec
from layoutlab.progress import Progress
from layoutlab.records.adopt import AdoptedTask
from layoutlab.records.sources import has_records
from layoutlab.report.comparison import Comparison
from layoutlab.report.profile import write_profile
from layoutlab.spec.load import LoadedSpec
from layoutlab.spec.models import VariantSpec
from layoutlab.store import Store
from layoutlab.variants import require_allowed

DEFAULT_TRIALS = 128


@dataclass(frozen=True, kw_only=True)
class OpRequest:
    """What to do: the operator's number in the file; `bare`: without what TVM fuses with it; trials for each variant;
    whether records are put into those of the whole model.
    """

    index: int
    bare: bool = False
    trials: int = DEFAULT_TRIALS
    write_back: bool = True


@dataclass(frozen=True, kw_only=True)
class AloneVariant:
    """One variant: the time of its functions for these operators, in microseconds, alone and within the whole network
    (by its last profile); what its records got of each task that both share; or why they got nothing.

    Neither time has changes of layout in it that are functions of their own. None is unknown.
    """

    name: str
    alone_us: float | None
    network_us: float | None
    tasks: tuple[AdoptedTask, ...]
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class OpResult:
    """The operators that were cut out, `fused_by` (variant and function that compute them as one), and what came of it.

    `written` says whether the records of the whole model were changed, `model` is the cut model's file.
    """

    request: OpRequest
    ops: tuple[Operator, ...]
    fused_by: tuple[str, str] | None
    model: Path
    comparison: Comparison
    variants: tuple[AloneVariant, ...]

    @property
    def written(self) -> bool:
        """Whether the records of the whole model got new ones."""
        return self.request.write_back and any(task.records for found in self.variants for task in found.tasks)


@dataclass(frozen=True, kw_only=True)
class _Alone:
    loaded: LoadedSpec
    ops: tuple[Operator, ...]
    fused_by: tuple[str, str] | None
    model: Path
    inputs: Path


def run_op(
    loaded: LoadedSpec, results: Path, progress: Progress, allowed: Sequence[str], request: OpRequest
) -> OpResult:
    """Cut the operator out, run the experiment on it, and put its records into those of the spec's run.

    Everything of it is kept below `results`, as that of a spec named `<spec>.op<index>`; doing it again goes on from
    there. Raises UsageError and ModelError for an operator that cannot be taken alone, else what `run_experiment` does.
    """
    require_allowed(loaded, allowed)
    model = resolve_model(loaded, progress)
    # Held to the end: nothing else may change the records that this goes on from.
    with Store(results / "runs" / loaded.spec.name) as store:
        run = begin(loaded, model, store, progress, tuple(allowed), "tune")
        alone = _cut_out(run, request, results)
        variants = alone.loaded.spec.variants
        _seed(run, alone, results, variants)
        comparison = run_experiment(alone.loaded, results, progress, allowed, inputs=alone.inputs)
        alone_us = dict(_function_times_us(alone.loaded, results, progress))
        ran = {row.name for row in comparison.rows if row.failure is None}
        with Store(results / "runs" / alone.loaded.spec.name) as made:
            folders = {variant.name: records_folder(made, variant.name) for variant in variants}
        found = [
            _write_back(run, variant, folders[variant.name], request.write_back)
            if variant.name in ran
            else ((), "it failed alone, so nothing is put back")
            for variant in variants
        ]
    indices = {op.index for op in alone.ops}
    return OpResult(
        request=request,
        ops=alone.ops,
        fused_by=alone.fused_by,
        model=alone.model,
        comparison=comparison,
        variants=tuple(
            AloneVariant(
                name=variant.name,
                alone_us=alone_us.get(variant.name),
                network_us=network_us(results / loaded.spec.name, variant.name, run.choice.device.name, indices),
                tasks=tasks,
                problem=problem,
            )
            for variant, (tasks, problem) in zip(variants, found, strict=True)
        ),
    )


def _cut_out(run: Run, request: OpRequest, results: Path) -> _Alone:
    """The operators as a model file with its inputs, and the spec for them."""
    type_ = require_op(run, request.index)
    tuned = tuned_variants(run)
    name = name_alone(run.spec.name, request.index, request.bare)
    folder = (results / "runs" / name).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    numbered = needs_numbers(tuned)
    built = built_variants(run, tuned, folder / "fusing") if numbered or not request.bare else ()
    fused = None if request.bare else fused_with(built, request.index)
    ops = (request.index,) if fused is None else fused.ops
    model, inputs = folder / f"{run.model.stem}.op{request.index}.tflite", folder / "cut_inputs.npz"
    files = {"inputs": str(run.inputs), "cut": str(model), "cut_inputs": str(inputs)}
    made = ask_about("cut_model", run.model, run.log("model"), timeout_s=600, **files, ops=ops)
    described = tuple(from_json(Operator, op) for op in made["ops"])
    numbers = conv_numbers(built[0], [op.index for op in described]) if numbered else None
    loaded = derive(
        run.loaded,
        name,
        f"op {request.index} {type_} of {run.spec.name}, alone",
        model,
        fitting_variants(run.loaded.path, tuned, described, run.progress),
        request.trials,
        made["largest"],
        numbers,
        run.progress,
    )
    fused_by = None if fused is None or fused.function is None else (fused.variant, fused.function)
    return _Alone(loaded=loaded, ops=described, fused_by=fused_by, model=model, inputs=inputs)


def _seed(run: Run, alone: _Alone, results: Path, variants: Sequence[VariantSpec]) -> None:
    """Begin with what the whole model's records know of the same functions."""
    folders = {}
    for variant in variants:
        try:
            folders[variant.name] = find_variant_records(run, variant, variant.name).folder
        except LayoutlabError as error:
            run.progress.say(f"{variant.name}: begins without the network's records: {error}")
    known = [variant for variant in variants if variant.name in folders and has_records(folders[variant.name])]
    if not known:
        return
    model = resolve_model(alone.loaded, run.progress)
    with Store(results / "runs" / alone.loaded.spec.name) as store:
        small = begin(alone.loaded, model, store, run.progress, run.allowed, "tune", inputs=alone.inputs)
        for variant in known:
            heading = f"{variant.name}: the network's records"
            try:
                tasks = adopt_records(small, variant, folders[variant.name], heading)
            except LayoutlabError as error:
                run.progress.say(f"{heading}: left out: {error}")
            else:
                count = sum(task.records for task in tasks)
                run.progress.say(f"{heading}: {count} of the same functions are taken over" if count else heading)


def _function_times_us(loaded: LoadedSpec, results: Path, progress: Progress) -> Iterator[tuple[str, float]]:
    """Of each variant that ran alone the time of the functions that compute the operators; its profile is written."""
    try:
        for name, profile in profile_spec(loaded, results, progress):
            if isinstance(profile, Profile):
                write_profile(profile, results / loaded.spec.name)
                yield name, sum(1e3 * row.time_ms for row in profile.rows if row.ops or row.parts)
    except LayoutlabError as error:
        progress.say(f"the functions are not timed: {error}")


def _write_back(
    run: Run, variant: VariantSpec, folder: Path | None, write: bool
) -> tuple[tuple[AdoptedTask, ...], str | None]:
    if folder is None or not has_records(folder):
        return (), "nothing in it was tuned"
    try:
        return adopt_records(run, variant, folder, f"{variant.name}: records for the network", write), None
    except LayoutlabError as error:
        return (), str(error)


def network_us(folder: Path, variant: str, device: str, ops: Collection[int]) -> float | None:
    """The time that the functions of these operators take within the whole network, by the last profile of the variant.

    None without a profile in `folder` from this device.
    """
    try:
        profile = json.loads((folder / f"profile.{variant}.json").read_bytes())
    except FileNotFoundError:
        return None
    if profile["device"] != device:
        return None
    nodes = {op["node"] for op in profile["operators"] if op["index"] in ops and op["node"] is not None}
    rows = [row for row in profile["rows"] if nodes.intersection(row["nodes"])]
    # Where one row has several calls of a symbol, each counts as much as another.
    return sum(1e3 * row["time_ms"] * len(nodes.intersection(row["nodes"])) / row["calls"] for row in rows) or None
