"""Whether a variant computes what TFLite computes. Nothing that fails here is ever ranked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_Arrays = Sequence[np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Check:
    """The comparison of a variant's outputs with TFLite's over all input sets.

    `max_abs` is the largest absolute difference; `top1` counts input sets whose largest output is at the same
    place in both, of `sets` (of the first output); `problem` is one line, empty when all is well.
    """

    ok: bool
    max_abs: float
    top1: int
    sets: int
    problem: str


def check(outputs: Sequence[_Arrays], reference: Sequence[_Arrays], *, rtol: float, atol: float) -> Check:
    """Compare outputs set by set: |difference| <= atol + rtol * |reference|, everywhere.

    Shapes and types must agree, and a value that is not finite where TFLite's is fails whatever the tolerance.
    Integers must be equal, except that 8-bit ones, which are quantised, may be one step apart.
    """
    problem, max_abs, top1 = "", 0.0, 0
    if len(outputs) != len(reference):
        problem = f"{len(outputs)} results for {len(reference)} input sets"
    for number, (got, wanted) in enumerate(zip(outputs, reference, strict=False)):
        problem = problem or _set_problem(got, wanted, rtol, atol, number)
        differences = [_max_abs(a, b) for a, b in zip(got, wanted, strict=False) if a.shape == b.shape]
        max_abs = max([max_abs, *differences])
        top1 += _same_top(got, wanted)
    return Check(ok=not problem, max_abs=max_abs, top1=top1, sets=len(reference), problem=problem)


def _set_problem(got: _Arrays, wanted: _Arrays, rtol: float, atol: float, number: int) -> str:
    if len(got) != len(wanted):
        return f"{len(got)} outputs where TFLite has {len(wanted)}"
    for position, (a, b) in enumerate(zip(got, wanted, strict=True)):
        where = f"output {position} of input set {number}"
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{where} is {a.dtype}{list(a.shape)} where TFLite's is {b.dtype}{list(b.shape)}"
        if problem := _array_problem(a, b, rtol, atol):
            return f"{where}: {problem}"
    return ""


def _array_problem(a: np.ndarray, b: np.ndarray, rtol: float, atol: float) -> str:
    if not np.issubdtype(b.dtype, np.floating):
        # Quantised outputs: a difference in the last bit before rounding is a whole step after it. Other integers
        # are indices or counts.
        allowed = 1 if b.dtype in (np.int8, np.uint8) else 0
        wrong = int((np.abs(a.astype(np.int64) - b.astype(np.int64)) > allowed).sum())
        return f"{wrong} of {b.size} values differ{' by more than one step' if allowed else ''}" if wrong else ""
    not_finite = int((~np.isfinite(a) & np.isfinite(b)).sum())
    if not_finite:
        return f"{not_finite} of {b.size} values are NaN or infinite where TFLite's are finite"
    finite = np.isfinite(b)
    difference = np.abs(a[finite].astype(np.float64) - b[finite])
    wrong = int((difference > atol + rtol * np.abs(b[finite])).sum())
    if wrong:
        return (
            f"{wrong} of {b.size} values differ by more than {atol:g} + {rtol:g} x |TFLite|, "
            f"at most by {difference.max():.3g}"
        )
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "values that are not finite differ"
    return ""


def _max_abs(a: np.ndarray, b: np.ndarray) -> float:
    with np.errstate(invalid="ignore"):  # infinity minus infinity is left out below
        difference = np.abs(a.astype(np.float64) - b.astype(np.float64))
    finite = difference[np.isfinite(difference)]
    return float(finite.max()) if finite.size else 0.0


def _same_top(got: _Arrays, wanted: _Arrays) -> bool:
    if not got or not wanted or got[0].shape != wanted[0].shape or not wanted[0].size:
        return False
    return bool(np.argmax(got[0]) == np.argmax(wanted[0]))
