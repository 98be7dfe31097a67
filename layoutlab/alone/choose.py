"""Which operators are cut out together, and which variants of the spec they are measured in."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from layoutlab.begin import Run
from layoutlab.compiling import do_job
from layoutlab.engine.base import Artifact, from_json, to_json
from layoutlab.engine.provenance import AT_COMPILE_TIME, Operator, Provenance
from layoutlab.errors import LayoutlabError, UsageError
from layoutlab.model.ask import ask_about
from layoutlab.progress import Progress
from layoutlab.spec.models import VariantSpec
from layoutlab.store import Store
from layoutlab.variants import compile_job, users_hook

# The operators that are imported as the convolutions that hooks see.
_CONVS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D"})


@dataclass(frozen=True, kw_only=True)
class Built:
    """A built variant of the whole model, which knows what its functions compute."""

    variant: str
    artifact: Artifact
    provenance: Provenance


def require_op(run: Run, index: int) -> str:
    """The type of the operator. Raises UsageError when the model has none of this number."""
    described = ask_about("describe_model", run.model, run.log("model"))
    ops = described["ops"]
    if not 0 <= index < len(ops):
        name = run.loaded.path
        raise UsageError(
            f"--op {index}: the model of {name} has {len(ops)} operators, 0 to {len(ops) - 1}; "
            f"layoutlab profile {name} lists them"
        )
    return str(ops[index]["type"])


def tuned_variants(run: Run) -> tuple[VariantSpec, ...]:
    """The variants of the spec that are tuned. Raises UsageError when none is."""
    found = tuple(variant for variant in run.spec.variants if variant.tune)
    if not found:
        names = ", ".join(variant.name for variant in run.spec.variants)
        raise UsageError(f"{run.loaded.path}: nothing to tune, {names} has tune: false")
    return found


def built_variants(run: Run, variants: Sequence[VariantSpec], scratch: Path) -> tuple[Built, ...]:
    """Those of the variants that the last run built of the same model, else the first that can be built, untuned."""
    found = []
    for variant in variants:
        artifact = _of_last_run(run.store, variant.name, run.model_sha256, run.loaded.spec.model.batch)
        if artifact is not None and artifact.provenance is not None:
            found.append(Built(variant=variant.name, artifact=artifact, provenance=artifact.provenance))
    return tuple(found) or (_build_one(run, variants, scratch),)


def _of_last_run(store: Store, variant: str, model_sha256: str, batch: int | None) -> Artifact | None:
    events = store.last_run()
    if not events or events[0]["model_sha256"] != model_sha256 or events[0]["batch"] != batch:
        return None
    uses = next((event for event in events if event["kind"] == "uses" and event["variant"] == variant), None)
    built = store.find("built", key=uses["built"], budget=uses["budget"]) if uses else None
    return from_json(Artifact, built["artifact"]) if built else None


def _build_one(run: Run, variants: Sequence[VariantSpec], scratch: Path) -> Built:
    failure: LayoutlabError | None = None
    for variant in variants:
        untuned = variant.model_copy(update={"tune": False})
        folder = scratch / variant.name
        folder.mkdir(parents=True, exist_ok=True)
        job = compile_job(
            run.loaded, untuned, run.model, run.choice.target, folder, run.allowed, run.choice.device.kind, (),
            run.choice.address,
        )  # fmt: skip
        heading = f"{variant.name}, untuned, to see what TVM fuses"
        try:
            artifact = from_json(Artifact, do_job(run, variant, heading, "compile_variant", job=to_json(job)))
        except LayoutlabError as error:
            run.progress.say(f"{heading}: failed: {error}")
            failure = error
        else:
            assert artifact.provenance is not None  # as all have that are built now
            return Built(variant=variant.name, artifact=artifact, provenance=artifact.provenance)
    assert failure is not None  # for there is a variant
    raise failure


@dataclass(frozen=True, kw_only=True)
class Fused:
    """Operators that one function of a variant computes; `function` is None for one that is in no function."""

    ops: tuple[int, ...]
    variant: str
    function: str | None


def fused_with(variants: Sequence[Built], index: int) -> Fused:
    """All operators of the function that computes the operator, in the variant where these are the most.

    Another variant, where changes of layout keep TVM from fusing them, has functions of its own for the others. Raises
    UsageError when the operator is computed at compile time.
    """
    return max((_fused_in(built, index) for built in variants), key=lambda found: len(found.ops))


def _fused_in(built: Built, index: int) -> Fused:
    provenance = built.provenance
    if provenance.removed.get(index) == AT_COMPILE_TIME:
        raise UsageError(
            f"op {index} {provenance.operators[index].type} is {AT_COMPILE_TIME}: no layout and no tuning changes that"
        )
    node = provenance.homes.get(index)
    function = next((found for found in provenance.functions if found.node == node), None)
    return Fused(
        ops=function.ops if function else (index,),
        variant=built.variant,
        function=function.function if function else None,
    )


def needs_numbers(variants: Sequence[VariantSpec]) -> bool:
    """Whether a hook may ask for the number of a convolution: a rule does, or it is the user's own code."""
    hooks = [variant.alter_op_layout for variant in variants]
    rules = [rule for hook in hooks if hook is not None for rule in hook.rules or ()]
    return any(rule.match.index is not None for rule in rules) or any(map(users_hook, variants))


def conv_numbers(built: Built, ops: Collection[int]) -> tuple[int, ...]:
    """The numbers that the convolutions among `ops` have in the whole model, as its hooks see them.

    Raises UsageError when the whole model's convolutions are not those of its file.
    """
    removed = built.provenance.removed
    convs = [op.index for op in built.provenance.operators if op.type in _CONVS and op.index not in removed]
    if len(convs) != len(built.artifact.convs):
        raise UsageError(
            f"hooks of this spec ask for numbers of convolutions, and TVM has {len(built.artifact.convs)} where the "
            f"model has {len(convs)}: which one this is cannot be told. Use rules without index"
        )
    return tuple(number for number, index in enumerate(convs) if index in ops)


def fitting_variants(
    spec: Path, variants: Sequence[VariantSpec], ops: Sequence[Operator], progress: Progress
) -> tuple[VariantSpec, ...]:
    """Those of the variants that mean something for these operators: without a convolution, those that ask no layout.

    Raises UsageError when none is left.
    """
    if any(op.type in _CONVS for op in ops):
        return tuple(variants)
    found = tuple(variant for variant in variants if not _asks_layout(variant))
    named = ", ".join(f"op {op.index} {op.type}" for op in ops)
    why = f"{named}: no layout applies, for layouts are chosen for convolutions and there is none in it"
    if not found:
        raise UsageError(
            f"{why}, and every tuned variant of {spec} asks for one. To measure it as it is, add a variant "
            "such as {name: as_is, alter_op_layout: keep}"
        )
    if len(found) < len(variants):
        progress.say(f"{why}; measured as it is, in {', '.join(variant.name for variant in found)}")
    return found


def _asks_layout(variant: VariantSpec) -> bool:
    hook = variant.alter_op_layout
    return variant.convert_layout is not None or (hook is not None and hook.hook == "nchwc")
