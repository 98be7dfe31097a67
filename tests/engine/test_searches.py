"""Searches by name: each reaches its budget, repeats from a seed, and the grid visits each point once."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from layoutlab.engine.relax.compile import not_skipped
from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.lower import lower
from layoutlab.engine.relax.tune.coverage import coverage
from layoutlab.engine.relax.tune.point_search import RankedPoints
from layoutlab.engine.relax.tune.points import (
    at_random,
    design_spaces,
    in_order,
    key_of,
    next_candidates,
    tried_keys,
)
from layoutlab.engine.relax.tune.pool import Outcome
from layoutlab.engine.relax.tune.records import open_database, trial_times
from layoutlab.engine.relax.tune.task import TaskSearch
from layoutlab.engine.relax.tune.tuner import extract_tasks, tune
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.errors import StageError

from ..conftest import TINY
from .running import tuning_options

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 1})


def extract(name: str) -> list:
    mod = canonicalise(import_model((TINY / f"{name}.tflite").read_bytes()))
    return extract_tasks(lower(mod, TARGET, pack_weights=True), TARGET)


@pytest.fixture(scope="module")
def tasks() -> list:
    return extract("tiny_conv")


@pytest.fixture(scope="module")
def pool_task():
    """A task with few points: a max_pool2d that reads no padding."""
    return next(task for task in extract("tiny_inception") if str(task.task_name) == "max_pool2d1")


def run(tasks, folder: Path, trials: int, again: bool = False, **changes):
    events = []
    database = open_database(folder)
    ended = tune(
        tasks,
        TARGET,
        tuning_options(trials, **changes),
        database,
        folder / "candidates",
        lambda event, **fields: events.append(fields),
        again=again,
    )
    return ended, coverage(database, tasks), events


def test_tasks_are_in_execution_order(tasks):
    assert [str(task.task_name) for task in tasks] == [
        "fused_conv2d_add_relu1",
        "fused_conv2d1_add1_relu11",
        "mean1",
        "fused_matmul_add21",
        "softmax1",
    ]


SEARCHES = pytest.mark.parametrize("search", ["replay-trace", "random", "grid"])


@SEARCHES
def test_a_search_without_a_cost_model_keeps_its_budget(tasks, tmp_path, search):
    ended, found, _ = run(tasks[-2:], tmp_path, 5, search=search, cost_model="none")
    assert (ended, sum(task.trials for task in found)) == ("budget", 5)
    assert all(task.best_us is not None for task in found)


class Asked:
    """A task's search, asked for batches whose times are given here instead of measured."""

    def __init__(self, task, database=None, seed: int = 7, **changes) -> None:
        self.database = database or meta_schedule.database.MemoryDatabase()
        self.search = TaskSearch(task, TARGET, tuning_options(1000, **changes), self.database, None, seed)
        (seconds,) = trial_times(self.database, [task.dispatched[0]])
        self.search.resume(seconds)

    def batch(self, count: int, seconds: float = 1.0) -> list[str]:
        """The traces of a batch, each of whose candidates is said to take so long."""
        first = self.search.trials == 0
        candidates = self.search.propose_first(count) if first else self.search.propose(count)
        self.search.add(candidates, [Outcome(seconds=seconds) for _ in candidates])
        if first:
            self.search.end_first()
        return [str(candidate.sch.trace) for candidate in candidates]


@SEARCHES
def test_a_search_proposes_the_same_for_a_seed(tasks, search):
    asked = Asked(tasks[-2], search=search)
    first = [asked.batch(3), asked.batch(3)]
    assert [len(batch) for batch in first] == [3, 3]
    again = Asked(tasks[-2], search=search)
    assert [again.batch(3), again.batch(3)] == first
    assert (Asked(tasks[-2], search=search, seed=8).batch(3) == first[0]) == (search == "grid")


@SEARCHES
def test_a_resumed_search_does_not_begin_with_its_first_points(tasks, search):
    asked = Asked(tasks[-2], search=search)
    first = asked.batch(4)
    resumed = Asked(tasks[-2], asked.database, search=search)
    assert resumed.search.trials == 4
    assert set(resumed.batch(4)) != set(first)
    if search != "replay-trace":  # which may draw a point twice
        assert resumed.batch(4) == Asked(tasks[-2], search=search).batch(12)[8:]


def spaces_of(task):
    context = meta_schedule.TuneContext(
        mod=task.dispatched[0],
        target=TARGET,
        space_generator="post-order-apply",
        search_strategy=meta_schedule.search_strategy.ReplayTrace(),
        rand_state=1,
        num_threads=1,
    )
    schedules = context.generate_design_space()
    return context, schedules, design_spaces(task.dispatched[0], schedules)


def test_the_grid_visits_each_point_of_a_small_space_once(pool_task):
    _, schedules, spaces = spaces_of(pool_task)
    keys = [point.key for point in in_order(spaces)]
    assert len(keys) == len(set(keys))
    # Two spaces with a tiling and one without, each with four amounts of unrolling.
    tilings = [len(tilings_of(schedule)) for schedule in schedules]
    assert tilings.count(1) == 1 and len(tilings) == 3
    assert len(keys) == sum(4 * count for count in tilings)


def tilings_of(schedule) -> list[tuple[int, int]]:
    """The tilings of a schedule's one SamplePerfectTile in two, by trying all pairs; one without it."""
    found = [inst for inst in schedule.trace.simplified(True).insts if str(inst.kind.name) == "SamplePerfectTile"]
    if not found:
        return [(1, 1)]
    outer, inner = (int(factor) for factor in schedule.trace.simplified(True).get_decision(found[0]))
    extent, largest = outer * inner, int(found[0].attrs[1])
    pairs = itertools.product(range(1, extent + 1), range(1, largest + 1))
    return [pair for pair in pairs if pair[0] * pair[1] == extent]


def test_drawing_at_random_finds_every_point_of_a_small_space_once(pool_task):
    _, _, spaces = spaces_of(pool_task)
    drawn = [point.key for point in at_random(spaces, seed=1)]
    ordered = [point.key for point in in_order(spaces)]
    assert sorted(drawn) == sorted(ordered)
    assert drawn != ordered


def test_every_sampling_instruction_can_be_enumerated(tasks):
    """Tilings, categories and places to compute at: the points that TVM itself sampled are among those of the grid."""
    softmax = tasks[-1]
    _, schedules, spaces = spaces_of(softmax)
    keys = {point.key for point in itertools.islice(in_order(spaces[-1:]), 400)}
    assert key_of(schedules[-1].trace.simplified(True)) in keys


def test_points_that_cannot_be_built_are_passed_over(pool_task):
    context, _, spaces = spaces_of(pool_task)

    class EverySecond:
        """A postprocessor that refuses, as TVM's do."""

        def __init__(self) -> None:
            self.asked = 0

        def apply(self, schedule) -> bool:
            self.asked += 1
            return self.asked % 2 == 0

    every = len(list(in_order(spaces)))
    tried: set[str] = set()
    found = next_candidates(in_order(spaces), [EverySecond(), *context.space_generator.postprocs], tried, 1000)
    assert len(found) == every // 2
    assert len(tried) == every


def test_the_grid_ends_with_the_space(pool_task):
    _, _, spaces = spaces_of(pool_task)
    points = len(list(in_order(spaces)))
    asked = Asked(pool_task, search="grid")
    batches = []
    while not asked.search.exhausted:
        batches.append(asked.batch(16))
    assert asked.search.trials == points == len(set(itertools.chain(*batches)))
    assert len(tried_keys(asked.database, pool_task.dispatched[0])) == points
    assert Asked(pool_task, asked.database, search="grid").batch(16) == []


def test_a_task_that_does_not_improve_gets_no_more(pool_task):
    asked = Asked(pool_task, search="grid", early_stop=5)
    for seconds in (4.0, 3.0, 3.0, 2.0, 2.0):
        asked.batch(2, seconds)
        assert not asked.search.exhausted
    asked.batch(2, 2.5)
    assert asked.search.exhausted and asked.search.stopped_early
    resumed = Asked(pool_task, asked.database, search="grid", early_stop=5).search
    assert resumed.exhausted and resumed.stopped_early
    resumed.try_again()
    assert not resumed.exhausted and not resumed.stopped_early


def test_tuning_ends_when_every_task_stopped_early(tasks, tmp_path):
    changes = {"search": "random", "early_stop": 1, "batch": 2}
    ended, found, events = run(tasks[-1:], tmp_path, 400, **changes)
    assert ended == "early stop"
    assert 2 <= found[0].trials < 400
    assert (events[0]["stopped_early"], events[-1]["stopped_early"]) == (0, 1)
    trials = found[0].trials
    assert run(tasks[-1:], tmp_path, 400, **changes)[:2] == ("early stop", found)
    ended, found, _ = run(tasks[-1:], tmp_path, trials + 1, again=True, **changes)
    assert (ended, found[0].trials) == ("budget", trials + 1)


def test_a_time_limit_ends_the_tuning_between_batches(tasks, tmp_path):
    ended, found, _ = run(tasks, tmp_path, 100_000, time_limit_s=1)
    assert ended == "time limit"
    assert 0 < sum(task.trials for task in found) < 100_000


def test_skipped_tasks_are_those_that_the_spec_names(tasks):
    assert not_skipped(tasks, tuning_options(8)) == (0, 1, 2, 3, 4)
    assert not_skipped(tasks, tuning_options(8, skip=("conv2d", "4", "pool2d"))) == (2, 3)
    with pytest.raises(StageError) as refused:
        not_skipped(tasks, tuning_options(8, skip=("7",)))
    assert str(refused.value) == 'tune: tuning.skip: "7" names task 7, and the variant has tasks 0 to 4'


def test_a_small_space_is_drawn_from_and_its_best_ranked_points_come_first(pool_task):
    """Every point is proposed once, and each batch is the best ranked of those that wait."""
    context, _, spaces = spaces_of(pool_task)
    postprocessors = context.space_generator.postprocs
    everything = next_candidates(in_order(spaces), postprocessors, set(), 10_000)
    ranked: list[list[float]] = []

    def rank(candidates):
        ranked.append([float(len(key_of(candidate.sch.trace))) for candidate in candidates])
        return ranked[-1]

    search = RankedPoints(at_random(spaces, 1), postprocessors, set(), rank, population=6)
    proposed = []
    while batch := search.propose(2):
        scores = [float(len(key_of(candidate.sch.trace))) for candidate in batch]
        assert scores == sorted(ranked[-1], reverse=True)[: len(batch)]
        assert len(ranked[-1]) <= 6
        proposed += [key_of(candidate.sch.trace) for candidate in batch]
    assert len(proposed) == len(set(proposed))
    # Drawing ends when hardly any point is new: a few of many may be left out.
    assert set(proposed) <= {key_of(candidate.sch.trace) for candidate in everything}
    assert len(proposed) >= 0.9 * len(everything)
