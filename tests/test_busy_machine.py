"""A run on a machine that something else begins to use."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from .conftest import TINY

SPEC = """\
name: x
model: {file: model.tflite}
device: host
variants: [{name: nhwc, alter_op_layout: keep, tune: false}]
measure: {rounds: 2, repeats: 5, min_repeat_ms: 40, warmup_ms: 20, retries: 1}
"""
HOG = [sys.executable, "-c", "while True: pass"]


def taken(folder: Path) -> list[dict]:
    path = folder / "results" / "runs" / "x" / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [event for event in map(json.loads, lines) if event["kind"] == "samples"]


def test_a_program_that_begins_to_compute_midway_is_flagged_and_leaves_no_verdict(tmp_path):
    (tmp_path / "x.yaml").write_text(SPEC)
    shutil.copy(TINY / "tiny_conv.tflite", tmp_path / "model.tflite")
    command = [sys.executable, "-m", "layoutlab", "run", "x.yaml"]
    run = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    hogs: list[subprocess.Popen] = []
    try:
        deadline = time.monotonic() + 120
        while {event["row"] for event in taken(tmp_path)} != {"nhwc", "tflite"}:
            assert run.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        hogs += [subprocess.Popen(HOG) for _ in range(os.cpu_count() or 1)]
        table, said = run.communicate(timeout=180)
    finally:
        for process in (*hogs, run):
            process.kill()
            process.wait()
    assert run.returncode == 0, said

    last = [event for event in taken(tmp_path) if event["round"] == 1]
    assert Counter(event["row"] for event in last) == {"nhwc": 2, "tflite": 2}
    for event in last:
        assert event["others_cores"] > 0.25
        assert event["disturbed"] == [f"other processes used {event['others_cores']:.2f} cores"]
    with open(tmp_path / "results" / "x" / "table.csv", newline="") as file:
        row, baseline = csv.DictReader(file)
    assert row["verdict"] == "unstable"
    assert "-of-2-rounds" in row["flags"] and "-of-2-rounds" in baseline["flags"]
    assert "disturbed in more rounds than the statistics can leave out, so without a verdict: nhwc, tflite." in table

    before = taken(tmp_path)
    again = subprocess.run([*command, "--again"], cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert again.returncode == 0, again.stderr
    anew = taken(tmp_path)[len(before) :]
    assert {(event["row"], event["round"]) for event in anew} == {
        (row, at) for row in ("nhwc", "tflite") for at in (0, 1)
    }
    assert {event["protocol"] for event in anew}.isdisjoint(event["protocol"] for event in before)
    rerun = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert (rerun.stdout, len(taken(tmp_path))) == (again.stdout, len(before) + len(anew))
