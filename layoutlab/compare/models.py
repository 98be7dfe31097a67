"""Results of several models next to each other: ratios to TFLite, and their geometric mean for each variant.

Only here are ratios averaged: within one model a mean over variants or operators would mean nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layoutlab.baseline.tflite import BASELINE
from layoutlab.compare.agree import differences, require_comparable
from layoutlab.compare.results import Result, ResultRow
from layoutlab.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class ModelsRow:
    """A variant's row in each model's result, None where a result has no such variant.

    `mean` is the geometric mean of its ratios to TFLite, None where a model has none.
    """

    variant: str
    rows: tuple[ResultRow | None, ...]
    mean: float | None


@dataclass(frozen=True, kw_only=True)
class ModelsTable:
    """Variants by model, and what has to be said. `models` are the specs' names, each of another model."""

    models: tuple[str, ...]
    variants: tuple[ModelsRow, ...]
    notes: tuple[str, ...]
    simulated: bool


def models_table(results: Sequence[Result]) -> ModelsTable:
    """Each result is of another model, all else agrees. Raises UsageError when not."""
    if len(results) < 2:
        raise UsageError("compare needs at least two results")
    by_model: dict[str, Result] = {}
    for result in results:
        model = str(result.run["model_sha256"])
        if model in by_model:
            raise UsageError(
                f"{by_model[model].path} and {result.path} are of the same model: with --models each is of another"
            )
        by_model[model] = result
    require_comparable(results, models=True)
    names = dict.fromkeys(row.name for result in results for row in result.rows if row.name != BASELINE)
    variants = tuple(_variant(name, results) for name in names)
    return ModelsTable(
        models=tuple(result.spec for result in results),
        variants=variants,
        notes=(*differences(results), *_notes(variants)),
        simulated=results[0].simulated,
    )


def _variant(name: str, results: Sequence[Result]) -> ModelsRow:
    from scipy.stats import gmean

    rows = tuple(next((row for row in result.rows if row.name == name), None) for result in results)
    ratios = [row.to_tflite.value for row in rows if row is not None and row.to_tflite is not None]
    return ModelsRow(variant=name, rows=rows, mean=float(gmean(ratios)) if len(ratios) == len(results) else None)


def _notes(variants: Sequence[ModelsRow]) -> list[str]:
    notes = []
    lacking = [found.variant for found in variants if found.mean is None]
    if lacking:
        notes.append(f"no mean of {', '.join(lacking)}, for not every model has a ratio of it")
    for found in variants:
        unstable = [
            row.result.spec
            for row in found.rows
            if row is not None and row.to_tflite and row.to_tflite.verdict == "unstable" and found.mean
        ]
        if unstable:
            notes.append(f"the mean of {found.variant} has unstable ratios in it: {', '.join(unstable)}")
    return notes
