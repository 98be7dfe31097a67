"""Searches that take the points of the design spaces themselves: in order, at random, or the best ranked of some."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from layoutlab.engine.relax.tune.points import Point, next_candidates
from layoutlab.engine.relax.tvm_cpu import meta_schedule

Candidates = list[meta_schedule.MeasureCandidate]
# So many new points are drawn, at most, for each candidate of a batch.
_DRAWN_FOR_EACH = 4


class PointSearch:
    """Candidates as their points come; none is proposed twice, and none that is in `tried`."""

    def __init__(self, points: Iterator[Point], postprocessors: Sequence[Any], tried: set[str]) -> None:
        self._points, self._postprocessors, self._tried = points, postprocessors, tried

    def propose(self, count: int) -> Candidates:
        """Up to `count` candidates, fewer when the points are used up."""
        return next_candidates(self._points, self._postprocessors, self._tried, count)


class RankedPoints(PointSearch):
    """The candidates that `rank` scores highest, of up to `population` that were drawn and not proposed yet."""

    def __init__(
        self,
        points: Iterator[Point],
        postprocessors: Sequence[Any],
        tried: set[str],
        rank: Callable[[Candidates], Sequence[float]],
        population: int,
    ) -> None:
        super().__init__(points, postprocessors, tried)
        self._rank, self._population = rank, population
        self._drawn: Candidates = []

    def propose(self, count: int) -> Candidates:
        """Up to `count` candidates, fewer when the points are used up."""
        missing = max(self._population, count) - len(self._drawn)
        self._drawn += super().propose(min(missing, _DRAWN_FOR_EACH * count))
        scores = self._rank(self._drawn) if self._drawn else []
        order = sorted(range(len(self._drawn)), key=lambda number: (-float(scores[number]), number))
        chosen, left = order[:count], sorted(order[count:])
        proposed = [self._drawn[number] for number in chosen]
        self._drawn = [self._drawn[number] for number in left]
        return proposed
