"""The search for one task: where its candidates come from, and how much another batch promises."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from layoutlab.engine.base import TuningOptions
from layoutlab.engine.relax.tune.pool import Outcome
from layoutlab.engine.relax.tune.records import FAILED_S
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm

_LOGGER = logging.getLogger("layoutlab.tuning")
# MetaSchedule's own values for its gradient scheduler.
_GRADIENT_ALPHA = 0.2
_GRADIENT_WINDOW = 3
# After so many batches without one valid candidate nothing more is spent on a task.
_HOPELESS_BATCHES = 3


class TaskSearch:
    """One task being tuned. Every result is written to the database before the task's next batch is proposed.

    One thread searches for candidates: with more of them chance decides which finds what, whatever the seed.
    """

    def __init__(
        self,
        task: meta_schedule.ExtractedTask,
        target: tvm.target.Target,
        options: TuningOptions,
        database: meta_schedule.database.Database,
        cost_model: meta_schedule.CostModel,
        seed: int,
    ) -> None:
        self.name, self.ops = str(task.task_name), int(task.weight)
        self.trials = self.failed = 0
        self.best_s: float | None = None
        self.exhausted = False
        self._mod = task.dispatched[0]
        self._target, self._options, self._seed = target, options, seed
        self._database, self._cost_model = database, cost_model
        self._best_after_batch: list[float] = []
        self._active: meta_schedule.TuneContext | None = None

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
        """Random candidates: the cost model knows nothing yet, so an evolutionary search would be wasted time."""
        context = self._context(meta_schedule.search_strategy.ReplayTrace())
        spaces = context.generate_design_space()
        if not _have_choices(spaces):
            # Each design space is one point: trying it twice cannot find anything.
            count, self.exhausted = min(count, len(spaces)), True
        self._start(context, spaces, count)
        return self._next(count)

    def propose(self, count: int) -> list[meta_schedule.MeasureCandidate]:
        """Candidates from the spec's search strategy; none when the space is used up."""
        if self._active is None:
            context = self._context(_strategy(self._options))
            spaces = context.generate_design_space()
            if not _have_choices(spaces):  # its points were all tried before the run was resumed
                self.exhausted = True
                return []
            self._start(context, spaces, self._options.batch)
        return self._next(count)

    def _context(self, strategy: meta_schedule.SearchStrategy) -> meta_schedule.TuneContext:
        return meta_schedule.TuneContext(
            mod=self._mod,
            target=self._target,
            space_generator="post-order-apply",
            search_strategy=strategy,
            task_name=self.name,
            logger=_LOGGER,
            # Another one when a search begins anew: the same would draw the same candidates again.
            rand_state=self._seed + self.trials,
            num_threads=1,
        )

    def _start(self, context: meta_schedule.TuneContext, spaces: Sequence[Any], batch: int) -> None:
        context.pre_tuning(self._options.trials, batch, spaces, self._database, self._cost_model)
        self._active = context

    def _next(self, count: int) -> list[meta_schedule.MeasureCandidate]:
        assert self._active is not None
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
        self._cost_model.update(self._active, candidates, results)
        self._active.notify_runner_results(candidates, results)

    def end_first(self) -> None:
        """The random batch is over: the next proposal comes from the spec's search strategy."""
        self._active = None

    def _commit(self, candidates: Sequence[meta_schedule.MeasureCandidate], outcomes: Sequence[Outcome]) -> None:
        workload = self._database.commit_workload(self._mod)
        for candidate, outcome in zip(candidates, outcomes, strict=True):
            seconds = FAILED_S if outcome.seconds is None else outcome.seconds
            self._database.commit_tuning_record(
                meta_schedule.database.TuningRecord(
                    candidate.sch.trace, workload, [seconds], self._target, candidate.args_info
                )
            )
        self._count([FAILED_S if o.seconds is None else o.seconds for o in outcomes])
        for outcome in outcomes:
            if outcome.error is not None:
                _LOGGER.warning("task %s: %s", self.name, outcome.error)

    def resume(self, seconds: Sequence[float]) -> None:
        """Account for the trials of an earlier run, as the batches they were measured in."""
        for start in range(0, len(seconds), self._options.batch):
            self._count(seconds[start : start + self._options.batch])

    def _count(self, seconds: Sequence[float]) -> None:
        valid = [time for time in seconds if time < FAILED_S]
        self.trials += len(seconds)
        self.failed += len(seconds) - len(valid)
        if valid:
            self.best_s = min([*valid, self.best_s or FAILED_S])
        self._best_after_batch.append(FAILED_S if self.best_s is None else self.best_s)
        if self.best_s is None and len(self._best_after_batch) >= _HOPELESS_BATCHES:
            self.exhausted = True


def _have_choices(spaces: Sequence[Any]) -> bool:
    """Whether any of the design spaces (schedules) samples anything at all."""
    return any(str(instruction.kind.name).startswith("Sample") for space in spaces for instruction in space.trace.insts)


def _strategy(options: TuningOptions) -> meta_schedule.SearchStrategy:
    if options.search == "evolutionary":
        return meta_schedule.search_strategy.EvolutionarySearch(population_size=options.population)
    return meta_schedule.search_strategy.ReplayTrace()
