"""What a comparison says, in a sentence or two, and no more than it says."""

from __future__ import annotations

from collections.abc import Sequence

from layoutlab.report.comparison import Comparison, Row
from layoutlab.report.pairs import Pair

_SAYS = {
    "faster": ("is faster than TFLite", "are faster than TFLite"),
    "slower": ("is slower than TFLite", "are slower than TFLite"),
    "no difference shown": ("shows no difference from TFLite", "show no difference from TFLite"),
    "unstable": ("is too unstable for a verdict", "are too unstable for a verdict"),
}
_FEWEST_ROUNDS = 6


def verdict(comparison: Comparison) -> str:
    """The verdict of each tuned variant on TFLite, the fastest of them, and what makes it doubtful."""
    rows = [row for row in comparison.rows if row.ratio and row.tuned]
    sentences = (
        [_beside_tflite(rows)] if rows else ["No tuned variant has a latency, so nothing is said about layouts."]
    )
    if len(rows) > 1:
        sentences.append(_fastest(comparison, rows))
    sentences += _failures(comparison.rows)
    if comparison.simulated:
        sentences.append("All of this is simulated, not measured.")
    elif comparison.measure["rounds"] < _FEWEST_ROUNDS:
        sentences.append(f"With {comparison.measure['rounds']} rounds only, this is for trying out.")
    return " ".join(sentences)


def _beside_tflite(rows: Sequence[Row]) -> str:
    parts = []
    for word, (one, several) in _SAYS.items():
        named = [f"{row.name} ({row.ratio.value:.2f}x)" for row in rows if row.ratio and row.ratio.verdict == word]
        if named:
            parts.append(f"{_listed(named)} {one if len(named) == 1 else several}")
    return f"{'; '.join(parts)}."


def _fastest(comparison: Comparison, rows: Sequence[Row]) -> str:
    best, *others = sorted(rows, key=lambda row: row.ms or 0.0)
    slower = {name for pair in comparison.pairs if (name := _slower_than(best.name, pair))}
    alike = [row.name for row in others if row.name not in slower]
    unit = "simulated ms" if comparison.simulated else "ms"
    sentence = f"Of the layouts, {best.name} takes the least time, {best.ms:.3f} {unit}"
    if not alike:
        return f"{sentence}, and the others are shown to be slower."
    return f"{sentence}, but no difference is shown between it and {_listed(alike)}."


def _slower_than(best: str, pair: Pair) -> str | None:
    """The other of the pair, where it is one of the fastest and the other is shown to be slower."""
    if pair.other == best and pair.ratio.verdict == "slower":
        return pair.variant
    if pair.variant == best and pair.ratio.verdict == "faster":
        return pair.other
    return None


def _failures(rows: Sequence[Row]) -> list[str]:
    wrong = [row.name for row in rows if row.failure and row.check and not row.check.ok]
    failed = [row.name for row in rows if row.failure and row.name not in wrong]
    found = []
    if wrong:
        found.append(f"{_listed(wrong)} {'gives' if len(wrong) == 1 else 'give'} wrong outputs.")
    if failed:
        found.append(f"{_listed(failed)} failed.")
    return found


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
