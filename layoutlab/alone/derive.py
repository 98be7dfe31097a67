"""The spec of operators alone, derived from that of the whole model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from layoutlab.progress import Progress
from layoutlab.spec.load import LoadedSpec
from layoutlab.spec.models import BaselineSpec, ModelSpec, VariantSpec

# Names of specs have at most so many characters.
_LONGEST_NAME = 64


def name_alone(name: str, index: int, bare: bool) -> str:
    """`mobilenet.op3`, or `mobilenet.op3.bare` for the operator without what TVM fuses into it."""
    suffix = f".op{index}" + (".bare" if bare else "")
    return name[: _LONGEST_NAME - len(suffix)].rstrip(".") + suffix


def derive(
    loaded: LoadedSpec,
    name: str,
    description: str,
    model: Path,
    variants: Sequence[VariantSpec],
    trials: int,
    largest: float,
    numbers: tuple[int, ...] | None,
    progress: Progress,
) -> LoadedSpec:
    """The same spec for a cut model, with these variants, and `trials` for each.

    `largest` is the largest absolute value of its outputs: what outputs may differ by absolutely is given for those of
    a network, which are about 1, and grows with them. Saved results of a baseline are those of the whole network, so
    LiteRT stands in for them. Tasks to skip are named in terms of the whole model, and none is left out here.
    """
    spec = loaded.spec
    baseline = spec.baseline
    if baseline.results is not None:
        progress.say("baseline.results are of the whole network: TFLite is measured by LiteRT here")
        baseline = BaselineSpec(threads=baseline.threads)
    atol = spec.check.atol * 10 ** math.ceil(math.log10(largest)) if largest > 1 else spec.check.atol
    changed = {
        "name": name,
        "description": description,
        "model": ModelSpec(file=str(model.resolve()), input_range=spec.model.input_range),
        "baseline": baseline,
        "variants": tuple(variants),
        "tuning": spec.tuning.model_copy(update={"trials": trials, "skip": ()}),
        "check": spec.check.model_copy(update={"atol": atol}),
    }
    return replace(loaded, spec=spec.model_copy(update=changed), conv_numbers=numbers)
