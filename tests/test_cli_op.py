# ruff: noqa: E501 - tables are shown as they are
"""`layoutlab op`: one operator alone, with real TVM and real processes; times are masked, for they differ."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from layoutlab.alone.run import DEFAULT_TRIALS

from .conftest import TINY

SPEC = """\
name: x
model: {file: tiny_conv.tflite}
device: host
variants:
  - {name: nhwc, alter_op_layout: keep}
tuning: {trials: 2, batch: 4, population: 8, min_repeat_ms: 0}
measure: {rounds: 1, repeats: 1, min_repeat_ms: 1, warmup_ms: 1}
"""


def layoutlab(folder: Path, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "layoutlab", verb, "x.yaml", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def prepare(folder: Path, spec: str = SPEC) -> Path:
    (folder / "x.yaml").write_text(spec)
    shutil.copy(TINY / "tiny_conv.tflite", folder)
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A spec that was never run, with one of its operators tuned alone."""
    folder = prepare(tmp_path_factory.mktemp("op"))
    done = layoutlab(folder, "op", "--op", "1", "--trials", "4")
    assert done.returncode == 0, done.stderr
    return folder, done


HEADING = """\
1 CONV_2D 1x1, alone, as fused_conv2d1_add1_relu11 of nhwc computes it

x.op1: tiny_conv.op1.tflite, 0.0 MB
"""

TIMES = """\
variant    function alone us    in the network us    task of the network        best us in its records    new records
---------  -------------------  -------------------  -------------------------  ------------------------  -------------
nhwc       TIME                 -                    fused_conv2d1_add1_relu11  - -> TIME                 4

in the network: - where no profile of the network on this device has it; layoutlab profile makes one
4 records went into those of the network, on top of the spec's budget, with a better best time for 1 of 1 task; layoutlab run builds with them
"""


FLOP = "278528.0"


def best_us(folder: Path, spec: str) -> list[float]:
    """The best times of the 1x1 convolution's function, whose cost in FLOP is that of no other."""
    rows = csv.DictReader((folder / "results" / spec / "coverage.csv").read_text().splitlines())
    return [float(row["best_us"]) for row in rows if (row["variant"], row["flop"]) == ("nhwc", FLOP)]


def trials(folder: Path, spec: str) -> list[str]:
    rows = csv.DictReader((folder / "results" / spec / "table.csv").read_text().splitlines())
    return [row["trials"] for row in rows if row["variant"] == "nhwc"]


def same_width(table: str) -> list[str]:
    return [re.sub(" {2,}", "  ", line.rstrip()) for line in table.splitlines()]


def test_an_op_is_measured_alone_and_its_records_put_back(alone):
    _, done = alone
    assert done.stdout.startswith(HEADING)
    times = done.stdout[done.stdout.index("variant    function alone us") :]
    assert same_width(re.sub(r"\d+\.\d\d", "TIME", times)) == same_width(TIMES)
    assert "nhwc, untuned, to see what TVM fuses: import" in done.stderr.splitlines()
    assert done.stderr.splitlines()[-1] == (
        "written to results/x.op1: table.md, table.csv, table.json, coverage.csv, report.html"
    )


def test_the_network_is_built_with_the_ops_records(alone, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(alone[0], folder)
    done = layoutlab(folder, "run")
    assert done.returncode == 0, done.stderr
    # The spec's own 2 trials were not used up by the 4 of the op.
    assert trials(folder, "x") == ["6"]
    (in_network,), (alone_us,) = best_us(folder, "x"), best_us(folder, "x.op1")
    assert in_network <= alone_us


def test_an_operator_that_is_not_there(alone):
    done = layoutlab(alone[0], "op", "--op", "5")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == (
        "error: --op 5: the model of x.yaml has 5 operators, 0 to 4; layoutlab profile x.yaml lists them"
    )


def test_what_is_no_number(alone):
    done = layoutlab(alone[0], "op", "--op", "conv")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "layoutlab op: error: argument --op: expected a number from 0, found 'conv'"


def test_the_help_tells_the_default_number_of_trials(alone):
    assert f"(default: {DEFAULT_TRIALS})" in layoutlab(alone[0], "op", "--help").stdout


@pytest.mark.slow
def test_an_op_goes_on_from_the_networks_records_and_leaves_them_when_told_so(tmp_path):
    folder = prepare(tmp_path, SPEC.replace("tuning:", "  - {name: untuned, tune: false}\ntuning:"))
    assert layoutlab(folder, "tune", "--tasks", "1", "--trials", "3").returncode == 0
    records = next((folder / "results" / "runs" / "x").glob("nhwc-*/records.jsonl"))
    before = records.read_bytes()
    done = layoutlab(folder, "op", "--op", "1", "--trials", "4", "--bare", "--json", "--no-write-back")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "nhwc: the network's records: 3 of the same functions are taken over" in done.stderr.splitlines()
    assert trials(folder, "x.op1.bare") == ["7"]
    (variant,) = found["variants"]  # the untuned one is left out
    (task,) = variant["tasks"]
    assert (task["task"], task["records"], found["written"]) == ("fused_conv2d1_add1_relu11", 4, False)
    assert task["after_us"] <= task["before_us"]
    assert records.read_bytes() == before
    # The same again has nothing to tune, and now puts them back.
    done = layoutlab(folder, "op", "--op", "1", "--trials", "4", "--bare", "--json")
    again = json.loads(done.stdout)
    assert (again["variants"][0]["tasks"], again["written"]) == ([task], True)
    assert records.read_bytes().startswith(before)
    assert records.read_bytes().count(b"\n") == 7
    done = layoutlab(folder, "op", "--op", "1", "--trials", "4", "--bare")
    assert done.stdout.splitlines()[-1] == "the records of the network have all of these already"
