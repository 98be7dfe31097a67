"""What `layoutlab plan` says of time, from the records of past runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from layoutlab.report.estimate import estimate_text
from layoutlab.spec.load import load_spec
from layoutlab.store import Store

from ..conftest import TINY

SPEC = """\
name: x
model: {file: model.tflite}
device: host
variants: [{name: nhwc}, {name: untuned, tune: false}]
tuning: {trials: 300}
measure: {rounds: 10}
"""


@pytest.fixture
def loaded(tmp_path):
    shutil.copy(TINY / "tiny_conv.tflite", tmp_path / "model.tflite")
    (tmp_path / "x.yaml").write_text(SPEC)
    return load_spec(tmp_path / "x.yaml")


def past_run(results: Path, name: str, loaded, model: str = "model.tflite", simulated: bool = False, factor: float = 1):
    """A run with 0.5 s a trial, 6 s a build and 4 s a round, of which 1.5 s are its protocol's, all times `factor`."""
    spec = loaded.spec.model_dump(mode="json")
    spec["measure"].update(warmup_ms=500, repeats=10, min_repeat_ms=100)
    with Store(results / "runs" / name) as store:
        store.append("run", spec=spec, model=model, simulated=simulated, rpc=None)
        built = {"artifact": {"tune_s": 50.0 * factor}, "new_trials": 100, "took_s": 56.0 * factor}
        store.append("built", **built)
        # All its trials were there before.
        store.append("built", artifact={"tune_s": 3.0}, new_trials=0, took_s=3.0 + 6.0 * factor)
        for took_s in (4.0, 4.0, 30.0):
            store.append("samples", took_s=1.5 + (took_s - 1.5) * factor)
        store.append("samples", note="of an earlier version, which kept no time")


def test_it_sums_tuning_building_and_rounds(loaded, tmp_path):
    past_run(tmp_path, "a", loaded)
    # 300 trials; two builds; 30 rows, each 2.5 s beyond the 1.5 s of the protocol.
    assert estimate_text(loaded, tmp_path) == (
        "from nothing about 5 min, by 1 past run on such a device: tuning 1 x 300 trials 2 min, building 2 12 s, "
        "30 rounds of one row 2 min"
    )


def test_runs_of_the_same_model_know_better_and_other_devices_nothing(loaded, tmp_path):
    past_run(tmp_path, "slow", loaded, model="large.tflite", factor=100)
    slow = estimate_text(loaded, tmp_path)
    assert "by 1 past run on such a device: tuning 1 x 300 trials 4 h 10 min" in slow
    past_run(tmp_path, "core", loaded, simulated=True)
    assert estimate_text(loaded, tmp_path) == slow
    past_run(tmp_path, "same", loaded)
    assert "by 1 past run on such a device: tuning 1 x 300 trials 2 min" in estimate_text(loaded, tmp_path)


def test_what_no_past_run_did_is_unknown(loaded, tmp_path):
    with Store(tmp_path / "runs" / "a") as store:
        store.append("run", spec=loaded.spec.model_dump(mode="json"), model="model.tflite", simulated=False, rpc=None)
        store.append("built", artifact={"tune_s": 3.0}, new_trials=3, took_s=9.0)
    assert estimate_text(loaded, tmp_path) == (
        "from nothing about 12 s, by 1 past run on such a device: building 2 12 s; unknown: tuning 1 x 300 trials, "
        "30 rounds of one row"
    )


def test_a_record_that_cannot_be_read_is_left_out(loaded, tmp_path):
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "events.jsonl").write_text("nonsense\n")
    assert estimate_text(loaded, tmp_path) == (
        f"no estimate of its time: no past run on such a device under {tmp_path / 'runs'}"
    )
