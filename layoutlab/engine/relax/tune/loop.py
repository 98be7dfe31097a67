"""The budget of a variant spent over its tasks, batch by batch."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from layoutlab.engine.base import TuningOptions
from layoutlab.engine.relax.tune.pool import CandidatePool, Collect
from layoutlab.engine.relax.tune.task import TaskSearch
from layoutlab.engine.relax.tvm_cpu import meta_schedule

Report = Callable[..., None]


@dataclass(frozen=True, kw_only=True)
class _Flight:
    """A batch that is being built and measured. Its task proposes nothing meanwhile."""

    search: TaskSearch
    candidates: Sequence[meta_schedule.MeasureCandidate]
    collect: Collect
    first: bool


class Loop:
    """Proposes, submits and collects batches in an order that depends on the costs alone, not on who is faster.

    Where the pool takes two batches at once that is: propose and submit A, propose and submit B, collect A, propose and
    submit C, collect B, ... so the search for one batch runs beside the measuring of another task's.
    """

    def __init__(
        self,
        searches: Sequence[TaskSearch],
        options: TuningOptions,
        pool: CandidatePool,
        report: Report,
        ends_at: float,
    ) -> None:
        self._searches, self._options, self._pool, self._report = searches, options, pool, report
        self._ends_at = ends_at
        self._flights: deque[_Flight] = deque()

    def run(self) -> None:
        """Spend what is left of the budget: a random batch for each new task, then what promises most.

        After `ends_at`, on the clock of `time.monotonic`, nothing is submitted any more.
        """
        size = first_batch_size(self._options, len(self._searches))
        for search in self._searches:
            if not search.trials:
                self._launch(search, size, first=True)
        while (best := self._most_promising()) is not None:
            self._launch(best, self._options.batch, first=False)
        while self._flights:
            self._land()

    def _launch(self, search: TaskSearch, count: int, *, first: bool) -> None:
        self._make_room()
        count = min(count, self._left())
        if count <= 0 or time.monotonic() >= self._ends_at:
            return
        candidates = search.propose_first(count) if first else search.propose(count)
        if not candidates:
            if first:
                search.end_first()
            return
        collect = self._pool.submit(candidates)
        self._flights.append(_Flight(search=search, candidates=candidates, collect=collect, first=first))

    def _most_promising(self) -> TaskSearch | None:
        """The task that gets the next batch; None when the budget or every task is used up."""
        self._make_room()
        while self._left() > 0 and time.monotonic() < self._ends_at:
            busy = [flight.search for flight in self._flights]
            free = [search for search in self._searches if not search.exhausted and search not in busy]
            if free:
                return max(free, key=TaskSearch.promise)
            if not self._flights:
                return None
            self._land()
        return None

    def _make_room(self) -> None:
        while len(self._flights) >= self._pool.in_flight:
            self._land()

    def _land(self) -> None:
        """Wait for the oldest batch; its outcomes are on disk before they count."""
        flight = self._flights.popleft()
        flight.search.add(flight.candidates, flight.collect())
        if flight.first:
            flight.search.end_first()
        show(self._searches, self._options, self._report)

    def _left(self) -> int:
        """Trials that are neither done nor under way."""
        flying = sum(len(flight.candidates) for flight in self._flights)
        return trials_left(self._searches, self._options) - flying


def first_batch_size(options: TuningOptions, tasks: int) -> int:
    """Random candidates for each task: a quarter of the budget over all, at most one batch, at least one."""
    return max(1, min(options.batch, options.trials // (4 * tasks)))


def trials_left(searches: Sequence[TaskSearch], options: TuningOptions) -> int:
    """Trials that are not done yet."""
    return options.trials - sum(search.trials for search in searches)


def show(searches: Sequence[TaskSearch], options: TuningOptions, report: Report) -> None:
    """Report where the tuning stands; see `tuner.tune`."""
    known = [(search.ops, search.best_s) for search in searches if search.best_s is not None]
    report(
        "trials",
        done=sum(search.trials for search in searches),
        total=options.trials,
        failed=sum(search.failed for search in searches),
        tuned=len(known),
        tasks=sum(not search.one_point for search in searches),
        stopped_early=sum(search.stopped_early for search in searches),
        best_us=1e6 * sum(ops * best for ops, best in known),
    )
