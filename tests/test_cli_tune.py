"""`layoutlab tasks` and `layoutlab tune`: tasks listed, chosen and tuned alone, and a run that goes on from there."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from layoutlab.engine.base import DEFAULT_MORE_TRIALS

from .conftest import TINY

SPEC = """\
name: x
model: {file: model.tflite}
device: host
variants:
  - {name: nhwc, alter_op_layout: keep}
  - {name: nothing, convert_layout: NHWC}
  - {name: untuned, tune: false}
tuning: {trials: 5, batch: 4, population: 8, skip: [softmax]}
measure: {rounds: 1, repeats: 1, min_repeat_ms: 1, warmup_ms: 1, retries: 0}
"""

NHWC = """\
nhwc: 5 tasks, 5 ops

task    name                       kind     ops    trials    best us
------  -------------------------  -------  -----  --------  ---------
0       fused_conv2d_add_relu1     conv2d   1      0         -
1       fused_conv2d1_add1_relu11  conv2d   1      0         -
2       mean1                      mean     1      0         -
3       fused_matmul_add21         matmul   1      0         -
4       softmax1                   softmax  1      0         -
"""

NOTHING = (
    "nothing: fails at layout: NHWC was asked for, but it changed nothing: all 2 convolutions stay NHWC. Leave it out "
    "to compare the model as it is, or ask for a layout their channels allow\n"
)

TUNED = """\
nhwc: 3 trials in TIME: the budget is spent

task    name                ops    trials    best us
------  ------------------  -----  --------  ----------
3       fused_matmul_add21  1      0 -> 3    - -> TIMES

These 3 trials come on top of the spec's budget, and its table counts them.
"""


@pytest.fixture
def layoutlab(tmp_path: Path):
    (tmp_path / "x.yaml").write_text(SPEC)
    shutil.copy(TINY / "tiny_conv.tflite", tmp_path / "model.tflite")

    def run(verb: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "layoutlab", verb, "x.yaml", *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    return run


def only_nhwc(folder: Path, text: str = SPEC) -> None:
    lines = text.splitlines(keepends=True)
    (folder / "x.yaml").write_text("".join(line for line in lines if "nothing" not in line and "untuned" not in line))


def test_tasks_of_every_variant_without_tuning(layoutlab, tmp_path):
    done = layoutlab("tasks")
    assert done.returncode == 1
    untuned = NHWC.replace("nhwc:", "untuned:")
    assert done.stdout == f"{NHWC}\n{NOTHING}\n{untuned}\n"
    assert not (tmp_path / "results").exists()


def test_what_cannot_be_tuned_is_said(layoutlab):
    done = layoutlab("tune", "--variant", "untuned")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: x.yaml: nothing to tune, untuned has tune: false\n"
    done = layoutlab("tune", "--trials", "0")
    assert done.returncode == 2
    assert done.stderr.endswith("error: argument --trials: expected a whole number from 1, found '0'\n")


def test_the_help_tells_the_default_number_of_trials(layoutlab):
    assert f"with --tasks {DEFAULT_MORE_TRIALS} a task" in " ".join(layoutlab("tune", "--help").stdout.split())


def by_workload(folder: Path) -> Counter[int]:
    (records,) = (folder / "results" / "runs" / "x").glob("nhwc-*/records.jsonl")
    return Counter(json.loads(line)[0] for line in records.read_text().splitlines())


def best(folder: Path, workload: int) -> float:
    (records,) = (folder / "results" / "runs" / "x").glob("nhwc-*/records.jsonl")
    found = [json.loads(line) for line in records.read_text().splitlines()]
    return min(record[1][1][0] for record in found if record[0] == workload)


def table(folder: Path) -> dict[str, str]:
    rows = csv.DictReader((folder / "results" / "x" / "table.csv").read_text().splitlines())
    return next(row for row in rows if row["variant"] == "nhwc")


def test_one_task_is_tuned_alone_and_the_run_goes_on_from_it(layoutlab, tmp_path):
    only_nhwc(tmp_path)
    done = layoutlab("tune", "--tasks", "matmull")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == (
        'error: nhwc: "matmull" names no task: did you mean "matmul"? There are the kinds conv2d, mean, matmul, '
        "softmax and the tasks 0 fused_conv2d_add_relu1, 1 fused_conv2d1_add1_relu11, 2 mean1, 3 fused_matmul_add21, "
        "4 softmax1"
    )

    done = layoutlab("tune", "--tasks", "matmul", "--trials", "3")
    assert done.returncode == 0, done.stderr
    shown = re.sub(r"in \d+ s:", "in TIME:", re.sub(r"- -> \d+\.\d\d *\n", "- -> TIMES\n", done.stdout))
    assert shown.replace("-  ---------\n", "-  ----------\n") == TUNED + "\n"
    assert by_workload(tmp_path) == {0: 3}

    # The spec's own five trials are spent on top, and skipped tasks get none.
    done = layoutlab("run")
    assert done.returncode == 0, done.stderr
    row = table(tmp_path)
    assert (row["trials"], row["ops"], row["ops_tuned"], row["flags"]) == ("8", "5", "4", "1-ops-untuned")
    page = (tmp_path / "results" / "x" / "table.md").read_text()
    assert "- tuning: 5 trials a variant, evolutionary search, cost model xgb, without softmax, weights packed" in page
    before, was = by_workload(tmp_path), best(tmp_path, 0)

    done = layoutlab("tune", "--tasks", "3", "--trials", "2", "--json")
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [event["kind"] for event in told if event["event"] == "recorded"]
    assert [kind for kind in kinds if kind.startswith("tune")] == ["tune", "tune_begins", "tuned"]
    last = told[-1]
    assert (last["event"], last["variant"], last["chosen"]) == ("tuned", "nhwc", [3])
    assert last["after"][3]["trials"] - last["before"][3]["trials"] == 2
    after = by_workload(tmp_path)
    assert after - before == {0: 2} and before - after == {}
    assert best(tmp_path, 0) <= was
    tasks = json.loads(layoutlab("tasks", "--json", "--variant", "nhwc").stdout)["nhwc"]
    assert [task["index"] for task in tasks] == [0, 1, 2, 3, 4]
    assert (tasks[3]["trials"], tasks[4]["trials"]) == (after[0], 0)

    # The next run builds with the new records and spends nothing.
    done = layoutlab("run")
    assert done.returncode == 0, done.stderr
    assert table(tmp_path)["trials"] == "10"
    assert by_workload(tmp_path) == after
    events = (tmp_path / "results" / "runs" / "x" / "events.jsonl").read_text()
    assert events.count('"kind":"built"') == 2


def test_a_time_limit_ends_a_run_and_the_table_says_so(layoutlab, tmp_path):
    only_nhwc(tmp_path, SPEC.replace("trials: 5", "trials: 100000, time_limit_s: 1"))
    done = layoutlab("run")
    assert done.returncode == 0, done.stderr
    row = table(tmp_path)
    assert "stopped-by-time-limit" in row["flags"]
    assert re.search(r"variant 1 of 1 \(nhwc\): tuned in \d+ s \(stopped by time limit\), built in \d+ s", done.stderr)
    page = (tmp_path / "results" / "x" / "table.md").read_text()
    assert "cost model xgb, at most 1 s a variant, without softmax" in page
    trials = row["trials"]
    assert layoutlab("run").returncode == 0
    assert table(tmp_path)["trials"] == trials
