"""A baseline by benchmark_model in a whole run: its command, its rounds, its row, and what stops it."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from layoutlab.baseline.tool import tool_arguments
from layoutlab.spec.models import BaselineSpec, MeasureSpec

from ..conftest import TINY

HERE = Path(__file__).parent
SPEC = """\
name: x
model: {file: model.tflite}
device: host
baseline: {runtime: benchmark_model, %s}
variants: [{name: nhwc, alter_op_layout: keep, tune: false}]
measure: {rounds: 3, repeats: 3, min_repeat_ms: 5, warmup_ms: 10}
"""
TOOL = "tool: ./benchmark_model"
ALLOW = ("--allow-hooks", "./benchmark_model")


@pytest.fixture
def folder(tmp_path) -> Path:
    shutil.copy(TINY / "tiny_conv.tflite", tmp_path / "model.tflite")
    shutil.copy(HERE / "benchmark_model", tmp_path)
    return tmp_path


def run(folder: Path, baseline: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "x.yaml").write_text(SPEC % baseline)
    return subprocess.run(
        [sys.executable, "-m", "layoutlab", "run", "x.yaml", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def table(folder: Path) -> dict:
    return json.loads((folder / "results" / "x" / "table.json").read_text())


def calls(folder: Path) -> list[list[str]]:
    path = folder / "calls.txt"
    return [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []


def output(folder: Path, name: str, us: int, **settings: str) -> str:
    """Saved output of the stand-in, as a file in the folder."""
    flags = {"graph": str(folder / "model.tflite"), "use_xnnpack": "true", "num_runs": "20", "num_threads": "1"}
    done = subprocess.run(
        [folder / "benchmark_model", *(f"--{key}={value}" for key, value in {**flags, **settings}.items())],
        capture_output=True,
        text=True,
        env={**os.environ, "TOOL_US": str(us)},
    )
    (folder / name).write_text(done.stdout + done.stderr)
    return name


def test_the_tool_measures_each_round(folder):
    refused = run(folder, TOOL)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        'error: baseline.tool "./benchmark_model" is a program that the spec wants to run, and it is not allowed yet. '
        "If you trust it, say --allow-hooks ./benchmark_model, or put "
        'allow-hooks = ["./benchmark_model"] under [tool.layoutlab] in pyproject.toml\n'
    )
    assert calls(folder) == [] and not (folder / "results").exists()

    done = run(folder, TOOL, *ALLOW, TOOL_US="50")
    assert done.returncode == 0, done.stderr
    sha256 = hashlib.sha256((folder / "benchmark_model").read_bytes()).hexdigest()
    model = f"--graph={folder / 'model.tflite'}"
    fixed = [model, "--num_threads=1", "--use_xnnpack=true", "--warmup_runs=1"]
    once = [*fixed, "--warmup_min_secs=0", "--num_runs=1", "--min_secs=0"]
    whole = [*fixed, "--warmup_min_secs=0.01", "--num_runs=3", "--min_secs=0.015"]
    assert calls(folder) == [once, whole, whole, whole]
    found = table(folder)
    assert found["samples_ms"]["tflite"] == [[0.051]] * 3
    row = next(row for row in found["rows"] if row["name"] == "tflite")
    assert row["flags"] == ["baseline by benchmark_model"]
    assert found["baseline_runtime"].startswith(
        f"benchmark_model, 1 thread, XNNPACK on, through local, sha256 {sha256[:12]}…; "
        "the average of 3 calls a round, for it reports no single calls; outputs by "
    )
    with open(folder / "results" / "x" / "table.csv") as lines:
        rows = {row["variant"]: row for row in csv.DictReader(lines)}
    assert float(rows["nhwc"]["ratio_to_tflite"]) == pytest.approx(float(rows["nhwc"]["median_ms"]) / 0.051)
    events = [json.loads(line) for line in (folder / "results/runs/x/events.jsonl").read_text().splitlines()]
    kept = [event["benchmark_model"] for event in events if event["kind"] == "samples" and event["row"] == "tflite"]
    assert [(record["inference"]["count"], record["inference"]["std_us"]) for record in kept] == [(3, 1.0)] * 3

    again = run(folder, TOOL, *ALLOW)
    assert (again.stdout, len(calls(folder))) == (done.stdout, 4)

    # Saved by hand from the same tool: two files for three rounds, and that is said.
    saved = [output(folder, "round1.txt", 60), output(folder, "round2.txt", 64)]
    done = run(folder, f"results: [{', '.join(saved)}]")
    assert done.returncode == 0, done.stderr
    found = table(folder)
    assert found["samples_ms"]["tflite"] == [[0.061], [0.065]]
    row = next(row for row in found["rows"] if row["name"] == "tflite")
    assert row["flags"] == ["baseline by benchmark_model", "2 of 3 rounds"]
    nhwc = next(row for row in found["rows"] if row["name"] == "nhwc")
    assert nhwc["ratio"]["low"] <= nhwc["ratio"]["value"] <= nhwc["ratio"]["high"]
    assert (
        "baseline: benchmark_model, 1 thread, XNNPACK on, results saved before; the average of 20 calls" in done.stdout
    )


def test_what_is_wrong_with_the_tool_is_found_before_anything_is_compiled(folder):
    trial = "results/runs/x/logs/benchmark_model.trial.txt"
    cases = [
        (
            f"{TOOL}, flags: {{num_thread: 1}}",
            {},
            f"error: baseline (local, log: {trial}): benchmark_model ignored what it does not know, --num_thread: "
            'did you mean "num_threads"? Correct the flag, or use a newer build of the tool',
            2,
        ),
        (
            TOOL,
            {"TOOL_FAILS": "yes"},
            f"error: baseline (local, log: {trial}): benchmark_model failed: Failed to load model "
            f"{folder / 'model.tflite'}",
            2,
        ),
        (
            f"{TOOL}, through: adb",
            {},
            "error: baseline.through adb would measure TFLite on another device than the variants, which run on "
            "{device}: figures of two devices never share a table",
            3,
        ),
    ]
    for baseline, environment, message, code in cases:
        done = run(folder, baseline, *ALLOW, **environment)
        expected = message.replace("{device}", done.stderr.partition("variants, which run on ")[2].partition(":")[0])
        assert (done.returncode, done.stdout, done.stderr.splitlines()[-1]) == (code, "", expected)
    assert not (folder / "results" / "x").exists()
    (folder / "benchmark_model").unlink()
    done = run(folder, TOOL, *ALLOW)
    assert done.stderr.splitlines()[-1] == f"error: cannot run {folder / 'benchmark_model'}: No such file or directory"


def test_results_that_do_not_belong_to_the_spec(folder):
    other = output(folder, "threads.txt", 50, num_threads="4")
    good = output(folder, "good.txt", 50)
    (folder / "again.txt").write_bytes((folder / good).read_bytes())
    (folder / "other.txt").write_text((folder / good).read_text().replace("size (MB): ", "size (MB): 1"))
    size = (folder / "model.tflite").stat().st_size / 1e6
    cases = {
        other: "threads.txt: ran with 4 threads, and the spec has 1: a comparison needs equal threads",
        "other.txt": f"other.txt: ran another model, of {10 + size:g} MB; model.tflite has {size:g} MB",
        "good.txt, again.txt": "again.txt is the same run as good.txt: each round needs a run of its own",
        "good.txt, good.txt, good.txt, good.txt": "baseline.results has 4 files, and measure.rounds is 3: "
        "there is one file for each round",
    }
    for files, message in cases.items():
        done = run(folder, f"results: [{files}]")
        assert (done.returncode, done.stdout, done.stderr.splitlines()[-1]) == (2, "", f"error: {message}")


def test_the_command_says_what_the_spec_says():
    baseline = BaselineSpec(
        runtime="benchmark_model", tool="/d/benchmark_model", flags={"use_xnnpack": "false", "a": "b c"}
    )
    measure = MeasureSpec(repeats=20, min_repeat_ms=10_000, warmup_ms=1500)
    assert tool_arguments("/d/benchmark_model", "/d/m.tflite", 4, measure, baseline) == [
        "/d/benchmark_model",
        "--graph=/d/m.tflite",
        "--num_threads=4",
        "--use_xnnpack=false",
        "--warmup_runs=1",
        "--warmup_min_secs=1.5",
        "--num_runs=20",
        "--min_secs=200",
        "--max_secs=2015",
        "--a=b c",
    ]
