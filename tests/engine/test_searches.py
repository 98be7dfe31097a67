"""Searches by name: each reaches its budget, repeats from a seed, and the grid visits each point once."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from layoutlab.engine.base import TuningOptions
from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.lower import lower
from layoutlab.engine.relax.tune.points import at_random, design_spaces, in_order, next_candidates, tried_keys
from layoutlab.engine.relax.tune.records import coverage, open_database
from layoutlab.engine.relax.tune.tuner import extract_tasks, tune
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm

from ..conftest import TINY

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 1})


def options(trials: int, **changes) -> TuningOptions:
    fields = {
        "trials": trials,
        "search": "evolutionary",
        "cost_model": "xgb",
        "pack_weights": True,
        "batch": 4,
        "population": 8,
        "seed": 1,
        "min_repeat_ms": 0,
    }
    return TuningOptions(**(fields | changes))


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
        options(trials, **changes),
        database,
        folder / "candidates",
        lambda event, **fields: events.append(fields),
        again=again,
    )
    return ended, coverage(database, tasks), events


def traces(folder: Path) -> list[str]:
    """Workload and trace of each record, in the order in which they were written."""
    lines = (folder / "records.jsonl").read_text().splitlines()
    return [json.dumps([workload, record[0]]) for workload, record in map(json.loads, lines)]


def test_tasks_are_in_execution_order(tasks):
    assert [str(task.task_name) for task in tasks] == [
        "fused_conv2d_add_relu1",
        "fused_conv2d1_add1_relu11",
        "mean1",
        "fused_matmul_add21",
        "softmax1",
    ]


@pytest.mark.parametrize("search", ["replay-trace", "random", "grid"])
def test_a_search_without_a_cost_model_keeps_its_budget_and_goes_on(tasks, tmp_path, search):
    changes = {"search": search, "cost_model": "none"}
    ended, found, _ = run(tasks[-2:], tmp_path, 6, **changes)
    assert (ended, sum(task.trials for task in found)) == ("budget", 6)
    assert all(task.best_us is not None for task in found)
    ended, found, _ = run(tasks[-2:], tmp_path, 10, **changes)
    assert (ended, sum(task.trials for task in found)) == ("budget", 10)
    # Resumed, none of them begins with its first points again.
    assert len(set(traces(tmp_path))) == 10


def proposals(task, search: str, seed: int, batches: int = 3) -> list[list[str]]:
    """What a search proposes for a task, whatever is measured."""
    from layoutlab.engine.relax.tune.pool import Outcome
    from layoutlab.engine.relax.tune.task import TaskSearch

    database = meta_schedule.database.MemoryDatabase()
    asked = TaskSearch(task, TARGET, options(100, search=search), database, None, seed, threads=1)
    found = []
    for number in range(batches):
        batch = asked.propose_first(4) if number == 0 else asked.propose(4)
        found.append([str(candidate.sch.trace) for candidate in batch])
        asked.add(batch, [Outcome(seconds=1.0) for _ in batch])
        if number == 0:
            asked.end_first()
    return found


@pytest.mark.parametrize("search", ["replay-trace", "random", "grid"])
def test_a_search_proposes_the_same_for_a_seed(tasks, search):
    first = proposals(tasks[0], search, seed=7)
    assert [len(batch) for batch in first] == [4, 4, 4]
    assert proposals(tasks[0], search, seed=7) == first
    assert (proposals(tasks[0], search, seed=8) == first) == (search == "grid")


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
    # Two spaces with a tiling and an unrolling, and one with the unrolling alone.
    tilings = [len(tilings_of(schedule)) for schedule in schedules]
    assert sorted(tilings) == [1, *sorted(tilings)[1:]]
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
    from layoutlab.engine.relax.tune.points import key_of

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


def test_the_grid_ends_with_the_space_and_a_rerun_measures_nothing(pool_task, tmp_path):
    _, _, spaces = spaces_of(pool_task)
    points = len(list(in_order(spaces)))
    ended, (found,), _ = run([pool_task], tmp_path, 1000, search="grid", cost_model="none", batch=16)
    assert (ended, found.trials) == ("nothing left", points)
    assert len(tried_keys(open_database(tmp_path), pool_task.dispatched[0])) == points
    ended, (found,), _ = run([pool_task], tmp_path, 1000, search="grid", cost_model="none", batch=16)
    assert (ended, found.trials) == ("nothing left", points)


def test_a_task_that_does_not_improve_stops_early(tasks, tmp_path):
    ended, found, events = run(tasks[-1:], tmp_path, 400, search="random", cost_model="none", early_stop=4)
    assert ended == "early stop"
    assert found[0].trials < 400
    assert (events[0]["stopped_early"], events[-1]["stopped_early"]) == (0, 1)
    before = found[0].trials
    ended, found, _ = run(tasks[-1:], tmp_path, 400, search="random", cost_model="none", early_stop=4)
    assert (ended, found[0].trials) == ("early stop", before)
    ended, found, _ = run(tasks[-1:], tmp_path, before + 2, again=True, search="random", early_stop=4)
    assert (ended, found[0].trials) == ("budget", before + 2)


def test_a_time_limit_ends_the_tuning_between_batches(tasks, tmp_path):
    ended, found, _ = run(tasks, tmp_path, 100_000, time_limit_s=1)
    assert ended == "time limit"
    assert 0 < sum(task.trials for task in found) < 100_000
