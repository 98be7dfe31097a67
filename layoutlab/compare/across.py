"""Several specs as one table, and two runs of a spec as regressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from layoutlab.baseline.tflite import BASELINE
from layoutlab.compare.agree import differences, require_comparable
from layoutlab.compare.results import Result, ResultRow, row_ratio
from layoutlab.errors import UsageError
from layoutlab.measure.stats import Ratio
from layoutlab.report.pairs import Pair

# Regressions first.
_ORDER = ("slower", "unstable", "no difference shown", "faster")


@dataclass(frozen=True, kw_only=True)
class SpecsTable:
    """Rows of several specs, by a label that is theirs alone, the ratios between variants, and what has to be said."""

    rows: tuple[tuple[str, ResultRow], ...]
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]
    simulated: bool


@dataclass(frozen=True, kw_only=True)
class Change:
    """One row then and now; `ratio` is now's latency over then's, None where one of them has none."""

    row: str
    then: ResultRow | None
    now: ResultRow | None
    ratio: Ratio | None

    @property
    def verdict(self) -> str:
        """The ratio's, or why there is none."""
        if self.ratio:
            return self.ratio.verdict
        if self.then is None or self.now is None:
            return "new" if self.then is None else "gone"
        return "failed now" if self.now.ms is None and self.then.ms is not None else "failed then"


@dataclass(frozen=True, kw_only=True)
class TimeTable:
    """What changed between two runs of a spec, the worst first, and what has to be said."""

    spec: str
    then: Result
    now: Result
    changes: tuple[Change, ...]
    notes: tuple[str, ...]


def compare_results(results: Sequence[Result]) -> SpecsTable | TimeTable:
    """One table of several specs, or the changes between two runs of one, the earlier given first.

    Raises UsageError when the results cannot be compared.
    """
    specs = [result.spec for result in results]
    if len(results) < 2:
        raise UsageError("compare needs at least two results")
    if len(set(specs)) == len(specs):
        return specs_table(results)
    if len(results) == 2:
        return _across_time(*results)
    twice = next(name for name in specs if specs.count(name) > 1)
    raise UsageError(f"{twice} is there more than once: compare different specs, or two results of one and the same")


def specs_table(results: Sequence[Result]) -> SpecsTable:
    """One table of one or more specs. Raises UsageError when their figures cannot stand next to each other."""
    require_comparable(results)
    variants = [row for result in results for row in result.rows if row.name != BASELINE]
    names = [row.name for row in variants]
    labels = [row.name if names.count(row.name) == 1 else f"{row.result.spec}/{row.name}" for row in variants]
    moved = _moved_baselines(results)
    rows = list(zip(labels, variants, strict=True))
    # Simulated, TFLite is the same row in all of them.
    baselines = results[:1] if results[0].simulated else results
    rows += [(BASELINE if len(baselines) == 1 else f"{r.spec}/{BASELINE}", r.baseline) for r in baselines]
    notes = [*differences(results), *(f"{line}, so that variants of the two get no verdict" for line in moved.values())]
    pairs = [
        Pair(variant=one, other=two, ratio=found)
        for (one, a), (two, b) in combinations(zip(labels, variants, strict=True), 2)
        if (found := row_ratio(a, b, doubtful=frozenset((a.result.spec, b.result.spec)) in moved))
    ]
    return SpecsTable(rows=tuple(rows), pairs=tuple(pairs), notes=tuple(notes), simulated=results[0].simulated)


def _moved_baselines(results: Sequence[Result]) -> dict[frozenset[str], str]:
    """The pairs of specs whose TFLite rows differ, in words: something besides the variants was different."""
    moved = {}
    for one, two in combinations(results, 2):
        found = row_ratio(two.baseline, one.baseline)
        if found and found.verdict != "no difference shown":
            moved[frozenset((one.spec, two.spec))] = (
                f"TFLite took {found.value:.2f} times as long in {two.spec} as in {one.spec} ({found.verdict})"
            )
    return moved


def _across_time(then: Result, now: Result) -> TimeTable:
    require_comparable((then, now), over_time=True)
    before = {row.name: row for row in then.rows}
    after = {row.name: row for row in now.rows}
    changes = [_change(name, before.get(name), after.get(name)) for name in dict.fromkeys([*after, *before])]
    notes = differences((then, now), over_time=True)
    baseline = row_ratio(now.baseline, then.baseline)
    if baseline and baseline.verdict != "no difference shown":
        notes.append(
            f"TFLite itself took {baseline.value:.2f} times as long ({baseline.verdict}): what changed may be the "
            "machine or the baseline, so see the ratios to TFLite"
        )
    return TimeTable(
        spec=now.spec, then=then, now=now, changes=tuple(sorted(changes, key=_gravity)), notes=tuple(notes)
    )


def _change(name: str, then: ResultRow | None, now: ResultRow | None) -> Change:
    return Change(row=name, then=then, now=now, ratio=row_ratio(now, then) if now and then else None)


def _gravity(change: Change) -> tuple[int, float]:
    if change.verdict == "failed now":
        return (-1, 0.0)
    if change.ratio is None:
        return (len(_ORDER), 0.0)
    return (_ORDER.index(change.verdict), -change.ratio.value)
