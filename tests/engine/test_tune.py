"""Tuning on real processes: budgets, resuming, records, and candidates that crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.lower import lower
from layoutlab.engine.relax.tune.coverage import coverage
from layoutlab.engine.relax.tune.loop import first_batch_size
from layoutlab.engine.relax.tune.records import open_database
from layoutlab.engine.relax.tune.tuner import extract_tasks, tune
from layoutlab.engine.relax.tvm_cpu import tvm

from ..conftest import TINY
from .running import tuning_options

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 1})


@pytest.fixture(scope="module")
def tasks():
    mod = canonicalise(import_model((TINY / "tiny_conv.tflite").read_bytes()))
    return extract_tasks(lower(mod, TARGET, pack_weights=True), TARGET)


def run(tasks, folder: Path, trials: int, **changes):
    events = []
    database = open_database(folder)
    tune(
        tasks,
        TARGET,
        tuning_options(trials, **changes),
        database,
        folder / "candidates",
        lambda event, **fields: events.append(fields),
    )
    return events, coverage(database, tasks)


def lines(folder: Path) -> int:
    return len((folder / "records.jsonl").read_text().splitlines())


def test_the_budget_is_kept_and_continued_and_every_task_is_reached(tasks, tmp_path):
    events, first = run(tasks, tmp_path, 12)
    assert sum(task.trials for task in first) == 12 == lines(tmp_path)
    assert all(task.best_us is not None for task in first)
    assert [event["done"] for event in events] == sorted(event["done"] for event in events)
    assert (events[0]["done"], events[-1]["done"], events[-1]["total"]) == (0, 12, 12)
    assert events[-1]["best_us"] == pytest.approx(sum(task.ops * task.best_us for task in first))

    events, second = run(tasks, tmp_path, 16)
    assert events[0]["done"] == 12
    assert sum(task.trials for task in second) == 16 == lines(tmp_path)
    assert all(b.best_us <= a.best_us for a, b in zip(first, second, strict=True))

    events, third = run(tasks, tmp_path, 16)
    assert len(events) == 1
    assert third == second


def test_every_batch_is_on_disk_before_the_next(tasks, tmp_path):
    seen = []

    def report(event, **fields):
        seen.append((fields["done"], lines_or_0(tmp_path)))

    scratch = tmp_path / "candidates"
    scratch.mkdir()
    (scratch / "left by a killed run.so").write_bytes(b"")
    tune(tasks, TARGET, tuning_options(8), open_database(tmp_path), scratch, report)
    assert all(done == stored for done, stored in seen)
    assert not scratch.exists()


def lines_or_0(folder: Path) -> int:
    return lines(folder) if (folder / "records.jsonl").exists() else 0


def test_replay_trace_and_the_random_cost_model(tasks, tmp_path):
    _, found = run(tasks, tmp_path, 10, search="replay-trace", cost_model="random")
    assert sum(task.trials for task in found) == 10


def test_first_batches_leave_most_of_the_budget_for_the_search():
    assert first_batch_size(tuning_options(1000, batch=16), tasks=40) == 6
    assert first_batch_size(tuning_options(10_000, batch=16), tasks=40) == 16
    assert first_batch_size(tuning_options(10, batch=16), tasks=40) == 1


def test_records_torn_by_a_kill_are_used_again(tasks, tmp_path):
    run(tasks, tmp_path, 8)
    path = tmp_path / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    events, found = run(tasks, tmp_path, 8)
    assert events[0]["done"] == 7
    assert sum(task.trials for task in found) == 8
