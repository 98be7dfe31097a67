# ruff: noqa: E501 - tables are shown as they are
"""`layoutlab profile` on a real run: real TVM, real processes; times are masked, for they differ."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from layoutlab.cli import main

from .conftest import TINY

SPEC = """\
name: x
model: {file: model.tflite}
device: host
variants:
  - {name: nchw4c, convert_layout: NCHW, alter_op_layout: {hook: nchwc, block: 4}}
tuning: {trials: 8, batch: 4, population: 8, min_repeat_ms: 0}
measure: {rounds: 1, repeats: 1, min_repeat_ms: 1, warmup_ms: 1, retries: 0}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder of a finished run with one tuned variant, whose weights are packed, and of its device's peaks."""
    folder = tmp_path_factory.mktemp("profile")
    (folder / "x.yaml").write_text(SPEC)
    shutil.copy(TINY / "tiny_conv.tflite", folder / "model.tflite")
    command = [sys.executable, "-m", "layoutlab", "run", "x.yaml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    command[-2:] = ["peaks", "x.yaml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def copied(finished, tmp_path, monkeypatch) -> Path:
    """A copy of the folder, to work in and to change; libraries stay where they were built."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def change_artifact(folder: Path, change) -> None:
    """Change what the run notes of its built variant."""
    path = folder / "results" / "runs" / "x" / "events.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for event in events:
        if event["kind"] == "built":
            change(event["artifact"])
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


TEXT = """\
nchw4c: # ms end to end, # MFLOP, # GFLOP/s, on CPU
medians of 100 inferences; another 100 with each function timed took # ms
by this device's peaks (measured: # GFLOP/s, # to # GB/s) the functions take at least # ms, #% of this
node computes output us share MFLOP GFLOP/s KB GB/s bound us of limit binds best us real/best function
0 layout_transform NHWC->NCHW4c 1x2x16x16x4 NCHW4c # # % # # 16 # # # % BINDS # # te_layout_transform1
1 0 CONV_2D 3x3 1x4x16x16x4 NCHW4c # # % # # 29 # # # % BINDS # # fused_conv2d_NCHWc_add_relu1
2 1 CONV_2D 1x1 1x8x16x16x4 NCHW4c # # % # # 51 # # # % BINDS # # fused_conv2d_NCHWc1_add1_relu11
3 2 MEAN 1x8x4 # # % # # 33 # # # % BINDS # # mean1
4 3 FULLY_CONNECTED 1x16 # # % # # 2 # # # % BINDS # # fused_matmul_add21
5 4 SOFTMAX 1x16 # # % # # 0 # # # % BINDS # # softmax1
all functions # # % # # %
remainder # # %
end to end # # % # # %
type calls ms share MFLOP GFLOP/s
CONV_2D 2 # # % # #
MEAN 1 # # % # #
FULLY_CONNECTED 1 # # % # #
layout 1 # # % # #
SOFTMAX 1 # # % # #
functions with a tuning record take # ms here; their best times there, each alone, sum to # ms
"""


def masked(text: str) -> list[str]:
    """The lines without times and the space between columns, in an order that does not depend on times.

    Which functions get a record within some trials, and with it packed weights, depends on times as well.
    """
    lines = [line for line in text.splitlines() if line and not line.startswith(("BUSY", "SLOWER", "---"))]
    lines = [
        re.sub(r"-?\d+\.\d+|\d+(?= ?%)|(?<= )-(?= )|-$", "#", line).replace(" SLOWER", "").replace("_prepacked", "")
        for line in lines
    ]
    # What binds a function of a microsecond depends on the peaks, and those of a busy machine vary.
    lines = [re.sub(r" (compute|memory) ", " BINDS ", line) for line in lines]
    return sorted(re.sub(r", on .*", ", on CPU", " ".join(line.split())) for line in lines)


def test_the_profile_of_a_run(copied, capsys):
    assert main(["profile", "x.yaml"]) == 0
    shown = capsys.readouterr()
    assert masked(shown.out) == sorted(TEXT.splitlines())
    assert shown.err.splitlines()[-1] == "written to results/x: profile.VARIANT.csv, profile.VARIANT.json, report.html"
    data = json.loads((copied / "results" / "x" / "profile.nchw4c.json").read_text())
    assert [op["node"] for op in data["operators"]] == [1, 2, 3, 4, 5]
    assert [len(data["raw"][name]) for name in ("times_us", "end_to_end_ms", "instrumented_ms")] == [100, 100, 100]
    assert sum(row["time_ms"] for row in data["rows"]) + data["remainder_ms"] == pytest.approx(data["end_to_end_ms"])
    events = [json.loads(line) for line in (copied / "results/runs/x/events.jsonl").read_text().splitlines()]
    assert [event["key"]["threads"] for event in events if event["kind"] == "peaks"] == [1], "they are measured once"
    assert data["peaks"]["sources"] == []
    for row in data["rows"]:
        assert row["intensity"] == pytest.approx(row["flop"] / row["bytes"])
        assert row["of_limit"] == pytest.approx(row["bound_us"] / row["time_ms"] / 1e3)
        assert row["flop"] > 0 or row["binds"] == "memory"
    assert data["bounds_ms"] == pytest.approx(sum(row["bound_us"] for row in data["rows"]) / 1e3)
    shown_page = (copied / "results" / "x" / "report.html").read_bytes()
    for heading in (b"Functions by variant", b"Roofline", b"How tuning went", b"nchw4c: the 6 slowest of 6 functions"):
        assert heading in shown_page
    assert main(["report", "x.yaml"]) == 0
    assert (copied / "results" / "x" / "report.html").read_bytes() == shown_page, "it is made of the stored events"
    csv_text = (copied / "results" / "x" / "profile.nchw4c.csv").read_text()
    assert csv_text.splitlines()[0].startswith("variant,nodes,function,calls,time_ms,share,ops,parts,transforms,shape")


def test_without_peaks_there_are_no_bounds(copied, capsys, monkeypatch):
    change = copied / "change"
    change.mkdir()
    (change / "sitecustomize.py").write_text(
        "from layoutlab import jobs\nfrom layoutlab.errors import DeviceError\n"
        "def broken(report, **arguments):\n    raise DeviceError('no kernel runs here')\n"
        "jobs.VERBS['time_kernels'] = broken\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(change), os.environ.get("PYTHONPATH", "")]))
    store = copied / "results" / "runs" / "x" / "events.jsonl"
    store.write_text("".join(line for line in store.read_text().splitlines(True) if '"peaks"' not in line))
    assert main(["profile", "x.yaml"]) == 0
    shown = capsys.readouterr()
    (line,) = [line for line in shown.err.splitlines() if line.startswith("no bounds")]
    assert re.sub(r"of .* cannot be measured", "...", line) == "no bounds, for the peaks ...: no kernel runs here"
    assert "share" in shown.out and "of limit" not in shown.out


def test_a_function_with_a_slow_schedule_is_flagged_and_no_other(copied, capsys):
    """As if another schedule were in the library than the record promised: of one function, not of the others."""

    def promise(artifact):
        for task in artifact["tasks"]:
            if task["best_us"] is not None:
                task["best_us"] = 0.1 if task["name"] == "fused_conv2d_NCHWc_add_relu1" else 1e6

    change_artifact(copied, promise)
    assert main(["profile", "x.yaml"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if " SLOWER " in line] == ["1"]
    assert (
        "SLOWER: node 1: a call takes more than 1.5 times its best time in the tuning records, and that costs more than "
        "1% of an inference\n" in out
    )


def test_without_a_finished_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text(SPEC)
    assert main(["profile", "x.yaml"]) == 2
    assert capsys.readouterr().err == (
        "error: results/runs/x holds no finished run: layoutlab run x.yaml, then profile again\n"
    )


def test_a_library_that_says_nothing_of_its_functions(copied, capsys):
    change_artifact(copied, lambda artifact: artifact.pop("provenance"))
    assert main(["profile", "x.yaml"]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert re.sub(r"/\S*variant.so", "variant.so", line) == (
        "error: nchw4c: variant.so was built by a layoutlab that did not note what its functions compute: remove it, "
        "and layoutlab run x.yaml again, which builds it from the same records"
    )


def test_a_library_that_is_not_the_one_that_was_measured(copied, capsys):
    change_artifact(copied, lambda artifact: artifact.update(sha256="0"))
    assert main(["profile", "x.yaml"]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert re.sub(r"/\S*variant.so", "variant.so", line) == (
        "error: nchw4c: variant.so is not what the last run measured: layoutlab run x.yaml again"
    )


def test_a_run_of_another_device(copied, capsys):
    path = copied / "results" / "runs" / "x" / "events.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for event in events:
        if event["kind"] == "run":
            event["device"] = "another CPU"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    assert main(["profile", "x.yaml"]) == 3
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert re.sub(r"this is .*: profile", "this is CPU: profile", line) == (
        "error: results/runs/x was run on another CPU, and this is CPU: profile it there, or run the spec here"
    )


def test_why_a_function_is_slower_than_its_record(copied, capsys):
    """One record is a lie: naive loops, said to take 1 us; of another task there is none any more."""
    (records,) = (copied / "results" / "runs" / "x").glob("nchw4c-*/records.jsonl")
    workloads = (records.parent / "workloads.jsonl").read_text().splitlines()
    trials = [json.loads(line) for line in records.read_text().splitlines()]
    first = next(number for number, line in enumerate(workloads) if "conv2d" in unpacked(line))
    found = next(trial for trial in trials if trial[0] == first)
    # A trace that does nothing; TVM takes none that is empty.
    nothing = [["GetSBlock", [], ["root", "main"], ["b0"]]]
    liar = [first, [[nothing, []], [1e-6], *found[1][2:]]]
    gone = {trial[0] for trial in trials if "conv2d" in unpacked(workloads[trial[0]])} - {first}
    changed = [liar if trial[0] in (first, *gone) else trial for trial in trials]
    records.write_text("".join(json.dumps(trial) + "\n" for trial in changed))
    change_artifact(copied, lambda artifact: artifact.update(sha256="0"))
    assert main(["run", "x.yaml"]) == 0
    capsys.readouterr()
    assert main(["profile", "x.yaml", "--explain", "--top", "9"]) == 0
    shown = capsys.readouterr()
    assert shown.err.splitlines()[-1] == (
        "written to results/x: explain.VARIANT.csv, explain.VARIANT.json, and the profiles"
    )
    data = json.loads((copied / "results" / "x" / "explain.nchw4c.json").read_text())
    rows = {row["nodes"][0]: row for row in data["rows"]}
    lying = rows[1] if rows[1]["best_us"] is not None else rows[2]
    other = rows[2] if lying is rows[1] else rows[1]
    assert lying["slower"] and lying["best_us"] == pytest.approx(1.0) and lying["again_us"] > 10
    assert lying["causes"][0] == (
        f"noisy tuning sample, or another machine state: its record takes {lying['again_us']:.1f} us now"
    )
    assert other["best_us"] is None and other["again_us"] is None and not other["slower"]
    assert other["causes"] == ["untuned: no trial reached it within the budget"]
    assert rows[0]["computes"] == "layout_transform NHWC->NCHW4c"
    assert rows[0]["transform_us"] > 0
    assert all(row["warm_us"] > 0 and row["cold_us"] > 0 for row in rows.values())


def unpacked(workload: str) -> str:
    """The module of a line of workloads.jsonl as text."""
    return base64.b64decode(json.loads(workload)[1]).decode(errors="replace")


def test_top_without_explain(copied, capsys):
    assert main(["profile", "x.yaml", "--top", "3"]) == 2
    assert capsys.readouterr().err == "error: --top says what --explain explains: add --explain\n"


def test_records_that_changed_since_the_library_was_built(copied, capsys):
    change_artifact(copied, lambda artifact: [task.update(best_us=1e-3) for task in artifact["tasks"]])
    assert main(["profile", "x.yaml", "--explain"]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert re.sub(r"of \d+ tasks|\([^l].*\):", "#", line).partition(" (log")[0] == (
        "error: nchw4c: explain: the best records # are not those that the library was built with # run the spec "
        "again, then explain"
    )
