"""A tuning depends on its seed, its records and the costs, and on nothing else."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from pathlib import Path

import pytest

from layoutlab.engine.base import TuningOptions
from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.lower import lower
from layoutlab.engine.relax.tune.pool import Outcome
from layoutlab.engine.relax.tune.records import open_database
from layoutlab.engine.relax.tune.tuner import extract_tasks, tune
from layoutlab.engine.relax.tvm_cpu import tvm

from ..conftest import TINY

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 1})
# XGBoost decides from its hundredth sample on.
SAMPLES_OF_CHANCE = 100


class Stopped(Exception):
    pass


class TracePool:
    """Costs that are a function of the candidate alone: of its trace. Stops when more than `stop` were collected."""

    def __init__(self, in_flight: int, stop: float = math.inf) -> None:
        self.in_flight, self._stop, self._collected = in_flight, stop, 0
        self.happened: list[tuple[str, int]] = []
        self.under_way = self.most_under_way = self._batches = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, candidates):
        if self._collected > self._stop:
            raise Stopped
        number = self._batches
        self._batches += 1
        self.happened.append(("submit", number))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)

        def collect():
            self.under_way -= 1
            self._collected += len(candidates)
            self.happened.append(("collect", number))
            return [cost(candidate) for candidate in candidates]

        return collect


def cost(candidate) -> Outcome:
    text = json.dumps([str(item) for item in candidate.sch.trace.as_json()])
    number = int(hashlib.sha256(text.encode()).hexdigest(), 16) % 1000
    return Outcome(error="it fails") if number % 10 == 0 else Outcome(seconds=(1 + number) * 1e-6)


@pytest.fixture(scope="module")
def tasks():
    """Two tasks."""
    mod = canonicalise(import_model((TINY / "tiny_conv.tflite").read_bytes()))
    found = extract_tasks(lower(mod, TARGET, pack_weights=True), TARGET)
    kinds = {
        str(task.task_name).split("_")[1].rstrip("0123456789"): task for task in found if "_" in str(task.task_name)
    }
    return [kinds["matmul"], kinds["conv2d"]]


def run(tasks, folder: Path, pool: TracePool, trials: int, **changes) -> str:
    """Tune with the pool; returns the records."""
    fields = {"search": "evolutionary", "cost_model": "xgb", "pack_weights": True, "batch": 32, "population": 8}
    options = TuningOptions(**(fields | {"trials": trials, "seed": 1} | changes))
    reports: list[dict] = []

    def report(event, **fields):
        reports.append(fields)

    try:
        tune(tasks, TARGET, options, open_database(folder), folder / "x", report, opener=lambda *_: pool)
    except Stopped:
        pass
    else:
        assert reports[-1]["done"] == trials
    return (folder / "records.jsonl").read_text()


def test_the_same_seed_and_costs_give_the_same_records_also_after_a_stop(tasks, tmp_path):
    trials = SAMPLES_OF_CHANCE + 70
    records = run(tasks, tmp_path / "first", TracePool(2), trials)
    # The second one; a batch that was under way when it stopped is neither stored nor counted.
    stopped = run(tasks, tmp_path / "stopped", TracePool(2, stop=SAMPLES_OF_CHANCE), trials)
    assert SAMPLES_OF_CHANCE < len(stopped.splitlines()) < trials
    assert records.startswith(stopped)
    for copy in ("one", "two"):
        shutil.copytree(tmp_path / "stopped", tmp_path / copy)
    resumed = run(tasks, tmp_path / "one", TracePool(2), trials)
    assert run(tasks, tmp_path / "two", TracePool(2), trials) == resumed
    assert len(resumed.splitlines()) == trials


def test_the_random_cost_model_is_seeded_too(tasks, tmp_path):
    changes = {"cost_model": "random", "batch": 4}
    records = run(tasks[:1], tmp_path / "first", TracePool(1), 8, **changes)
    assert run(tasks[:1], tmp_path / "second", TracePool(1), 8, **changes) == records


def test_what_a_search_proposes_after_its_first_batch_is_new(tasks, tmp_path):
    """Replaying traces with the seed of the first batch would draw its candidates once more."""
    records = run(tasks[:1], tmp_path, TracePool(1), 24, search="replay-trace", batch=4)
    assert len(set(records.splitlines())) > 20


@pytest.mark.parametrize("in_flight", [1, 2])
def test_batches_overlap_in_a_fixed_order_where_the_pool_allows_it(tasks, tmp_path, in_flight):
    pool = TracePool(in_flight)
    run(tasks, tmp_path, pool, 8, batch=2, search="replay-trace")
    assert pool.most_under_way == in_flight
    collected = [number for what, number in pool.happened if what == "collect"]
    assert collected == sorted(collected)
    assert len(collected) == sum(what == "submit" for what, _ in pool.happened)
    if in_flight == 1:
        assert [what for what, _ in pool.happened] == ["submit", "collect"] * len(collected)
    else:
        assert pool.happened[:5] == [("submit", 0), ("submit", 1), ("collect", 0), ("submit", 2), ("collect", 1)]
