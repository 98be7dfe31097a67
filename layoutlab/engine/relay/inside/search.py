"""The search for one task by AutoTVM's tuners, which are asked for points and told times; nothing is measured twice."""

import numpy
from tvm.autotvm.measure import MeasureInput, MeasureResult
from tvm.autotvm.tuner import GATuner, GridSearchTuner, RandomTuner
from tvm.autotvm.tuner.model_based_tuner import ModelBasedTuner
from tvm.autotvm.tuner.sa_model_optimizer import SimulatedAnnealingOptimizer
from tvm.autotvm.tuner.xgboost_cost_model import XGBoostCostModel
from tvm.contrib.popen_pool import MapResult, StatusKind

from .candidate import seed
from .measuring import Outcome
from .refused import Refused

TUNERS = ("xgb", "ga", "random", "gridsearch")
# After so many trials without one valid candidate nothing more is spent on a task.
HOPELESS_TRIALS = 32
# The rule of Ansor's gradient scheduler, as layoutlab's own tuner has it.
_GRADIENT_ALPHA, _GRADIENT_WINDOW = 0.2, 3
# A generation of the genetic tuner, in batches: its own 100 are more than a task of many gets.
_GENERATION = 2
# Annealing steps between two fits of the cost model. TVM's 500 are for plans of 64 trials.
_ANNEALING_STEPS = 120
# A tuner that proposes only what is known in so many batches has found all it will.
_PATIENCE = 20


class TaskSearch:
    """One task being tuned.

    `trials`, `failed`, `best_s`: what was measured; `exhausted`: it gets no more trials, for its space is used up, or
    none was valid, or (`stopped_early`) its best did not improve in `early_stop` trials; `one_point`: there is nothing
    to choose.
    """

    def __init__(self, task, options):
        self.task, self._options = task, options
        self.trials = self.failed = self._since_best = 0
        self.best_s = None
        self.one_point = task.space <= 1
        self.exhausted, self.stopped_early = self.one_point, False
        self._best_after_batch = []
        self._known = {}
        self._tuner = None
        self._batch, self._resumed = [], []

    def resume(self, trials):
        """Account for the trials of an earlier run, as batches."""
        size = self._options["batch"]
        for start in range(0, len(trials), size):
            self._count([(trial.index, _outcome_of(trial)) for trial in trials[start : start + size]])
        self._resumed = [trial.index for trial in trials]
        self.exhausted = self.exhausted or len(self._known) >= self.task.space

    def try_again(self):
        """Go on although an earlier run gave the task up."""
        if not self.one_point and len(self._known) < self.task.space:
            self.exhausted = self.stopped_early = False
            self._since_best = 0

    def propose(self, count):
        """At most so many configurations that were not measured yet; fewer where the space or the search ends."""
        if self.best_s is None:
            count = min(count, HOPELESS_TRIALS - self.trials)
        count = min(count, self.task.space - len(self._known))
        self._seed()
        self._batch = []
        fresh = []
        for _ in range(_PATIENCE):
            wanted = count - len(fresh)
            if wanted <= 0 or not self._tuner_now().has_next():
                break
            configs = self._next(wanted)
            if not configs:
                break
            for config in configs:
                if config.index not in self._known and config.index not in [other.index for other in fresh]:
                    fresh.append(config)
            self._batch += configs
            if not fresh:
                self._tell()
        self.exhausted = self.exhausted or not fresh
        return fresh

    def add(self, outcomes):
        """Take the `(config, Outcome)` pairs of what was proposed."""
        self._count([(config.index, outcome) for config, outcome in outcomes])
        self._seed()
        self._tell()
        self.exhausted = self.exhausted or len(self._known) >= self.task.space

    def promise(self, rivals_best_s):
        """Seconds of the network that another batch may save, when the fastest of its rivals takes `rivals_best_s`."""
        history = self._best_after_batch
        if not history or self.best_s is None:
            return 0.0
        best, count = history[-1], len(history)
        recent = (history[-1 - _GRADIENT_WINDOW] - best) / _GRADIENT_WINDOW if count > _GRADIENT_WINDOW else 0.0
        gain = _GRADIENT_ALPHA * recent + (1 - _GRADIENT_ALPHA) * best / count
        # What is slower than its rival saves nothing before it has caught up.
        return self.task.ops * max(0.0, gain - (best - rivals_best_s))

    def _next(self, wanted):
        tuner = self._tuner_now()
        if isinstance(tuner, GATuner):
            # Beyond the generation it would begin it again.
            wanted = min(wanted, len(tuner.genes) - tuner.trial_pt)
        return tuner.next_batch(wanted)

    def _tell(self):
        """Give the tuner the times of all it proposed, in its order, known ones as well."""
        told = [config for config in self._batch if config.index in self._known]
        self._batch = []
        inputs = [MeasureInput(self.task.task.target, self.task.task, config) for config in told]
        self._tuner_now().update(inputs, [_result_of(self._known[config.index]) for config in told])

    def _tuner_now(self):
        if self._tuner is None:
            self._tuner = make_tuner(self.task.task, self._options)
            self._tell_resumed()
        return self._tuner

    def _tell_resumed(self):
        """Only the tuner with a model learns from points that it did not propose."""
        if not isinstance(self._tuner, ModelBasedTuner):
            return
        space = self.task.task.config_space
        self._batch, kept = [space.get(index) for index in self._resumed], self._batch
        if self._batch:
            self._tell()
        self._batch = kept

    def _seed(self):
        """What is proposed depends on the seed, the task and its trials: tuners draw from the global generators."""
        seed(self._options["seed"] + 7919 * self.task.index + 104729 * self.trials)

    def _count(self, outcomes):
        for index, outcome in outcomes:
            self._known[index] = outcome
            self.trials += 1
            self.failed += outcome.seconds is None
            better = outcome.seconds is not None and (self.best_s is None or outcome.seconds < self.best_s)
            self._since_best = 0 if better else self._since_best + 1
            if better:
                self.best_s = outcome.seconds
        if self.best_s is not None:
            self._best_after_batch.append(self.best_s)
        limit = self._options["early_stop"]
        if limit is not None and self._since_best >= limit:
            self.exhausted = self.stopped_early = True
        if self.best_s is None and self.trials >= HOPELESS_TRIALS:
            self.exhausted = True


def make_tuner(task, options):
    """AutoTVM's tuner of the name `options["tuner"]` for a task. Raises Refused for a name it does not know."""
    name = options["tuner"]
    if name == "random":
        return RandomTuner(task)
    if name == "gridsearch":
        return GridSearchTuner(task)
    if name == "ga":
        return GATuner(task, pop_size=_GENERATION * options["batch"])
    if name == "xgb":
        annealing = SimulatedAnnealingOptimizer(task, n_iter=_ANNEALING_STEPS, log_interval=0)
        return ModelBasedTuner(task, _CostModel(task), annealing, plan_size=options["batch"])
    raise Refused("tune", "%s is no tuner of AutoTVM: expected %s" % (name, ", ".join(TUNERS)))


class _CostModel(XGBoostCostModel):
    """AutoTVM's model on the choices of a point, computed here: its own starts processes for each fit of each task.

    One thread, so that it repeats itself.
    """

    def __init__(self, task):
        super().__init__(task, feature_type="knob", loss_type="rank", num_threads=1, log_interval=0)

    def _reset_pool(self, space, target, task):
        self.pool = _Here(space)


class _Here:
    """In the place of a pool of processes."""

    def __init__(self, space):
        self._space = space

    def map_with_error_catching(self, function, indices):
        """Features of points; the function is the one that the processes would be given."""
        return [MapResult(StatusKind.COMPLETE, self._space.get(index).get_flatten_feature()) for index in indices]


def _outcome_of(trial):
    return Outcome(seconds=trial.seconds, error_no=trial.error_no, error="see the log")


def _result_of(outcome):
    costs = ("", outcome.error) if outcome.seconds is None else (numpy.float64(outcome.seconds),)
    return MeasureResult(costs, outcome.error_no, outcome.all_cost_s, 0.0)
