"""The search for one task: where its candidates come from, and how much another batch promises."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any

from layoutlab.engine.base import TuningOptions
from layoutlab.engine.relax.tune.failures import append_failures
from layoutlab.engine.relax.tune.point_search import PointSearch, RankedPoints
from layoutlab.engine.relax.tune.points import at_random, design_spaces, in_order, tried_keys
from layoutlab.engine.relax.tune.pool import Outcome
from layoutlab.engine.relax.tune.records import FAILED_S
from layoutlab.engine.relax.tune.space import count_points, make_context
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm

_LOGGER = logging.getLogger("layoutlab.tuning")
# MetaSchedule's own values for its gradient scheduler.
_GRADIENT_ALPHA = 0.2
_GRADIENT_WINDOW = 3
# After so many batches, or so many trials, without one valid candidate nothing more is spent on a task.
_HOPELESS_BATCHES = 3
HOPELESS_TRIALS = 32
# Searches that enumerate or draw the points of the design spaces themselves.
_BY_POINTS = ("grid", "random")
# In spaces of at most so many points evolution would mostly find again what it has. Points are drawn instead, and the
# cost model chooses among them: it takes a tenth of the time.
_FEW_POINTS = 4096
# What TVM takes for a seed is between 1 and this.
_LARGEST_SEED = 2**31 - 1


class TaskSearch:
    """One task being tuned. Every result is written to the database before the task's next batch is proposed.

    One thread searches for candidates: with more of them chance decides which finds what, whatever the seed.

    `exhausted`: the task gets no more trials, for its space is used up, or hopeless, or (`stopped_early`) because
    its best did not improve in `options.early_stop` trials.
    """

    def __init__(
        self,
        task: meta_schedule.ExtractedTask,
        target: tvm.target.Target,
        options: TuningOptions,
        database: meta_schedule.database.Database,
        cost_model: meta_schedule.CostModel | None,
        seed: int,
    ) -> None:
        self.name, self.ops = str(task.task_name), int(task.weight)
        self.trials = self.failed = 0
        self.best_s: float | None = None
        self.exhausted = self.stopped_early = self.one_point = False
        self._since_best = 0
        self._spaces: list[tvm.s_tir.Schedule] | None = None
        self._mod = task.dispatched[0]
        self._target, self._options, self._seed = target, options, seed
        self._database, self._cost_model = database, cost_model
        self._best_after_batch: list[float] = []
        self._active: meta_schedule.TuneContext | None = None
        self._by_points = False
        self._points: PointSearch | None = None

    def promise(self) -> float:
        """Seconds of the whole network another batch may save: the rule of Ansor's gradient scheduler.

        A weighted mean of the recent improvement per batch and of what is left to gain if the time fell as 1/n
        (Zheng et al., OSDI 2020, section 6).
        """
        history = self._best_after_batch
        if not history:
            return 0.0
        best = history[-1]
        recent = (history[-1 - _GRADIENT_WINDOW] - best) / _GRADIENT_WINDOW if len(history) > _GRADIENT_WINDOW else 0.0
        return self.ops * (_GRADIENT_ALPHA * recent + (1 - _GRADIENT_ALPHA) * best / len(history))

    def propose_first(self, count: int) -> list[meta_schedule.MeasureCandidate]:
        """Random candidates: the cost model knows nothing yet, so an evolutionary search would be wasted time.

        A search by points begins with its first points. There is none for a task whose space is one point: nothing to
        choose, so nothing to measure.
        """
        context = self._context(meta_schedule.search_strategy.ReplayTrace())
        spaces = self._design_spaces(context)
        if self._by_points:
            return self.propose(count)
        if self.one_point:
            return []
        if not _have_choices(spaces):
            # Each design space is one point: trying it twice cannot find anything.
            count, self.exhausted = min(count, len(spaces)), True
        self._start(context, spaces, count)
        candidates = self._next(self._hoped(count))
        if not candidates:
            append_failures(self._database, self._mod, self.name, ["TVM's postprocessors refused every candidate"])
        return candidates

    def propose(self, count: int) -> list[meta_schedule.MeasureCandidate]:
        """Candidates from the spec's search strategy; none when the space is used up."""
        if self._active is None:
            context = self._context(_strategy(self._options))
            spaces = self._design_spaces(context)
            if self.one_point:
                return []
            if self._by_points:
                self._points = self._point_search(context, spaces)
            elif not _have_choices(spaces):  # its points were all tried before the run was resumed
                self.exhausted = True
                return []
            self._start(context, spaces, self._options.batch)
        return self._next(self._hoped(count))

    def _hoped(self, count: int) -> int:
        """At most so many candidates that a task without a valid one stays within its bound."""
        return count if self.best_s is not None else min(count, HOPELESS_TRIALS - self.trials)

    def _context(self, strategy: meta_schedule.SearchStrategy) -> meta_schedule.TuneContext:
        return make_context(
            self._mod,
            self._target,
            strategy,
            task_name=self.name,
            logger=_LOGGER,
            rand_state=self._random_state(),
            num_threads=1,
        )

    def _design_spaces(self, context: meta_schedule.TuneContext) -> list[tvm.s_tir.Schedule]:
        if self._spaces is None:
            self._spaces = list(context.generate_design_space())
            points = count_points(self._mod, self._spaces)
            if points == 1:
                self.one_point = self.exhausted = True
            few = points is not None and points <= _FEW_POINTS
            self._by_points = self._options.search in _BY_POINTS or (self._options.search == "evolutionary" and few)
        return self._spaces

    def _random_state(self) -> int:
        """Another one when a search begins anew: the same would draw the same candidates again."""
        return (self._seed + self.trials - 1) % _LARGEST_SEED + 1

    def _point_search(self, context: meta_schedule.TuneContext, schedules: Sequence[Any]) -> PointSearch:
        spaces = design_spaces(self._mod, schedules)
        # Drawing from a space without choices would take long to end.
        in_turn = self._options.search == "grid" or not _have_choices(schedules)
        points = in_order(spaces) if in_turn else at_random(spaces, self._seed)
        tried = tried_keys(self._database, self._mod)
        if self._cost_model is None:
            return PointSearch(points, context.space_generator.postprocs, tried)
        rank = functools.partial(self._cost_model.predict, context)
        return RankedPoints(points, context.space_generator.postprocs, tried, rank, self._options.population)

    def _start(self, context: meta_schedule.TuneContext, spaces: Sequence[Any], batch: int) -> None:
        context.pre_tuning(self._options.trials, batch, spaces, self._database, self._cost_model)
        self._active = context

    def _next(self, count: int) -> list[meta_schedule.MeasureCandidate]:
        assert self._active is not None
        if self._points is not None:
            found = self._points.propose(count)
            self.exhausted = self.exhausted or len(found) < count
            return found
        candidates = self._active.generate_measure_candidates()
        self.exhausted = self.exhausted or not candidates
        return list(candidates or [])[:count]

    def add(self, candidates: Sequence[meta_schedule.MeasureCandidate], outcomes: Sequence[Outcome]) -> None:
        """Keep a batch's outcomes: in the database, in the cost model and in the search."""
        assert self._active is not None
        results = [
            meta_schedule.runner.RunnerResult([o.seconds] if o.seconds is not None else None, o.error) for o in outcomes
        ]
        self._commit(candidates, outcomes)
        if self._cost_model is not None:
            self._cost_model.update(self._active, candidates, results)
        self._active.notify_runner_results(candidates, results)

    def end_first(self) -> None:
        """The random batch is over: the next proposal comes from the spec's search strategy."""
        if self._points is None:
            self._active = None

    def _commit(self, candidates: Sequence[meta_schedule.MeasureCandidate], outcomes: Sequence[Outcome]) -> None:
        # Before the records: a record says only that a candidate failed.
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        append_failures(self._database, self._mod, self.name, errors)
        workload = self._database.commit_workload(self._mod)
        for candidate, outcome in zip(candidates, outcomes, strict=True):
            seconds = FAILED_S if outcome.seconds is None else outcome.seconds
            self._database.commit_tuning_record(
                meta_schedule.database.TuningRecord(
                    candidate.sch.trace, workload, [seconds], self._target, candidate.args_info
                )
            )
        self._count([FAILED_S if o.seconds is None else o.seconds for o in outcomes])
        for error in errors:
            _LOGGER.warning("task %s: %s", self.name, error)

    def resume(self, seconds: Sequence[float]) -> None:
        """Account for the trials of an earlier run, as the batches they were measured in."""
        for start in range(0, len(seconds), self._options.batch):
            self._count(seconds[start : start + self._options.batch])

    def try_again(self) -> None:
        """Go on although an earlier run gave the task up."""
        self.exhausted = self.stopped_early = False
        self._since_best = 0

    def _count(self, seconds: Sequence[float]) -> None:
        valid = [time for time in seconds if time < FAILED_S]
        self.trials += len(seconds)
        self.failed += len(seconds) - len(valid)
        self._wait(seconds)
        if valid:
            self.best_s = min([*valid, self.best_s or FAILED_S])
        self._best_after_batch.append(FAILED_S if self.best_s is None else self.best_s)
        hopeless = len(self._best_after_batch) >= _HOPELESS_BATCHES or self.trials >= HOPELESS_TRIALS
        if self.best_s is None and hopeless:
            self.exhausted = True

    def _wait(self, seconds: Sequence[float]) -> None:
        """Count the trials since the best; before `best_s` is brought up to date."""
        best = self.best_s or FAILED_S
        for time in seconds:
            self._since_best = 0 if time < best else self._since_best + 1
            best = min(best, time)
        if self._options.early_stop is not None and self._since_best >= self._options.early_stop:
            self.exhausted = self.stopped_early = True


def _have_choices(spaces: Sequence[Any]) -> bool:
    """Whether any of the design spaces (schedules) samples anything at all."""
    return any(str(instruction.kind.name).startswith("Sample") for space in spaces for instruction in space.trace.insts)


def _strategy(options: TuningOptions) -> meta_schedule.SearchStrategy:
    if options.search == "evolutionary":
        return meta_schedule.search_strategy.EvolutionarySearch(population_size=options.population)
    return meta_schedule.search_strategy.ReplayTrace()
