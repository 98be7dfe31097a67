"""`layoutlab aa`: a real artifact against itself, and what is said of runs whose verdicts are known."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys

import pytest

from layoutlab.aa import SelfCheck, SelfComparison, self_check_text
from layoutlab.measure.stats import Ratio

from .conftest import TINY

SPEC = """\
name: x
model: {file: model.tflite}
device: host
variants: [{name: other, tune: false}, {name: nhwc, alter_op_layout: keep, tune: false}]
measure: {rounds: 2, repeats: 2, min_repeat_ms: 5, warmup_ms: 5, retries: 0}
"""


def check(*verdicts: str) -> SelfCheck:
    runs = [
        SelfComparison(ratio=Ratio(value=1.03, low=0.98, high=1.08, verdict=verdict), disturbed=at)
        for at, verdict in enumerate(verdicts)
    ]
    return SelfCheck(spec="x", variant="nhwc", device="Some CPU", rounds=18, runs=tuple(runs))


def test_an_artifact_against_itself_takes_two_rows_in_turns(tmp_path):
    (tmp_path / "x.yaml").write_text(SPEC)
    shutil.copy(TINY / "tiny_conv.tflite", tmp_path / "model.tflite")
    command = [sys.executable, "-m", "layoutlab", "aa", "x.yaml", "--variant", "nhwc", "--runs", "1", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["variant"], found["rounds"], len(found["runs"])) == ("nhwc", 2, 1)
    with open(tmp_path / "results" / "x" / "aa.nhwc.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["ratio"]) == found["runs"][0]["ratio"]["value"]
    lines = (tmp_path / "results" / "runs" / "x" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    taken = [(event["round"], event["row"]) for event in events if event["kind"] == "samples"]
    assert sorted(taken) == [(0, "one"), (0, "other"), (1, "one"), (1, "other")]
    # No run of the spec, so that there is nothing to report.
    assert "run" not in {event["kind"] for event in events}


SAID = """\
x: nhwc against itself on Some CPU, 18 rounds a run

 run takes x itself [95 %] verdict disturbed
1 1.03 [0.98, 1.08] no difference shown 0 of 36
2 1.03 [0.98, 1.08] slower 1 of 36
3 1.03 [0.98, 1.08] unstable 2 of 36

called different: 1 of 2 runs (50 %), where 5 % are to be expected at most
without a verdict: 1 of 3 runs: something disturbed the machine, or rounds spread. They say nothing; give the machine \
nothing else to do, and check with --again
"""


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if not line.lstrip().startswith("---")]


def test_what_is_said_of_the_runs():
    assert squeezed(self_check_text(check("no difference shown", "slower", "unstable"))) == squeezed(SAID)


@pytest.mark.parametrize(("wrong", "too_often"), [(1, False), (3, False), (4, True), (20, True)])
def test_more_than_chance_explains_is_said(wrong, too_often):
    found = check(*["slower"] * wrong, *["no difference shown"] * (20 - wrong))
    assert found.too_often == too_often
    said = "That is more than chance explains: trust no small difference measured here" in self_check_text(found)
    assert said == too_often


def test_runs_without_a_verdict_prove_nothing():
    said = self_check_text(check("unstable", "unstable"))
    assert "called different" not in said and "without a verdict: 2 of 2 runs" in said
