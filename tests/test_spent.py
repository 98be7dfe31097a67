"""Trials besides a spec's budget: counted once, also when the tuning that made them was interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutlab.engine.base import TaskCoverage, TuneResult
from layoutlab.spent import additional_trials, begin_tuning, end_tuning, tuned_since
from layoutlab.store import Store


def result(trials: int) -> TuneResult:
    def task(count: int) -> TaskCoverage:
        return TaskCoverage(name="conv", ops=1, trials=count, failed=0, best_us=1.0)

    return TuneResult(before=(task(5),), after=(task(5 + trials),), chosen=(0,), ended="budget", tune_s=1.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "nhwc-key"
    found.mkdir()
    return found


def write(folder: Path, records: int) -> None:
    (folder / "records.jsonl").write_text("[1, 2]\n" * records)


def test_only_trials_besides_the_budget_are_additional(tmp_path, folder):
    with Store(tmp_path) as store:
        assert additional_trials(store, "key", folder) == 0
        for additional, trials in ((True, 7), (False, 20), (True, 3)):
            begin_tuning(store, "nhwc", "key", folder, additional)
            end_tuning(store, "nhwc", "key", additional, result(trials))
        begin_tuning(store, "nchw", "other", folder, True)
        end_tuning(store, "nchw", "other", True, result(100))
        assert additional_trials(store, "key", folder) == 10


@pytest.mark.parametrize("additional", [True, False])
def test_an_interrupted_tuning_made_the_records_there_are_more(tmp_path, folder, additional):
    write(folder, 5)
    with Store(tmp_path) as store:
        begin_tuning(store, "nhwc", "key", folder, additional)
    write(folder, 9)
    with Store(tmp_path) as store:
        assert additional_trials(store, "key", folder) == (4 if additional else 0)
    # What a run adds afterwards is the run's.
    write(folder, 20)
    with Store(tmp_path) as store:
        assert additional_trials(store, "key", folder) == (4 if additional else 0)


def test_what_was_built_before_more_trials_is_out_of_date(tmp_path, folder):
    with Store(tmp_path) as store:
        first = store.append("built", key="key", artifact=1)
        begin_tuning(store, "nhwc", "key", folder, True)
        end_tuning(store, "nhwc", "key", True, result(0))
        assert not tuned_since(store, "key", first)
        begin_tuning(store, "nhwc", "key", folder, False)
        end_tuning(store, "nhwc", "key", False, result(1))
        assert tuned_since(store, "key", first)
        assert not tuned_since(store, "other", first)
        second = store.append("built", key="key", artifact=1)
        assert not tuned_since(store, "key", second)
