"""A baseline by benchmark_model in a whole run: its command, its rounds, its row, and what stops it."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from layoutlab.baseline.result_proto import message_class
from layoutlab.baseline.tool import open_tool_baseline, tool_arguments
from layoutlab.begin import Run
from layoutlab.device.choose import Choice
from layoutlab.device.host import HostDevice
from layoutlab.errors import BaselineError, DeviceError
from layoutlab.progress import Progress
from layoutlab.spec.load import load_spec
from layoutlab.spec.models import BaselineSpec, MeasureSpec
from layoutlab.store import Store

from ..conftest import TINY

HERE = Path(__file__).parent
SPEC = """\
name: x
model: {file: model.tflite}
device: host
baseline: {runtime: benchmark_model, %s}
variants: [{name: nhwc, alter_op_layout: keep, tune: false}]
measure: {rounds: 2, repeats: 3, min_repeat_ms: 5, warmup_ms: 10, retries: 0}
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
    assert calls(folder) == [once, whole, whole]
    found = table(folder)
    assert found["samples_ms"]["tflite"] == [[0.051]] * 2
    row = next(row for row in found["rows"] if row["name"] == "tflite")
    assert row["flags"][:1] == ["baseline by benchmark_model"]
    assert found["baseline_runtime"].startswith(
        f"benchmark_model, 1 thread, XNNPACK on, through local, sha256 {sha256[:12]}…; "
        "the average of 3 calls a round, for it reports no single calls; outputs by "
    )
    with open(folder / "results" / "x" / "table.csv") as lines:
        rows = {row["variant"]: row for row in csv.DictReader(lines)}
    first, second = (statistics.median(samples) for samples in found["samples_ms"]["nhwc"])
    assert float(rows["nhwc"]["ratio_to_tflite"]) == pytest.approx((first * second) ** 0.5 / 0.051)
    events = [json.loads(line) for line in (folder / "results/runs/x/events.jsonl").read_text().splitlines()]
    kept = [event["benchmark_model"] for event in events if event["kind"] == "samples" and event["row"] == "tflite"]
    assert [(record["inference"]["count"], record["inference"]["std_us"]) for record in kept] == [(3, 1.0)] * 2

    again = run(folder, TOOL, *ALLOW)
    assert (again.stdout, len(calls(folder))) == (done.stdout, 3)

    # Saved by hand from the same tool: one file for two rounds, and that is said.
    done = run(folder, f"results: [{output(folder, 'round1.txt', 60, use_xnnpack='false')}]")
    assert done.returncode == 0, done.stderr
    found = table(folder)
    assert found["samples_ms"]["tflite"] == [[0.061]]
    row = next(row for row in found["rows"] if row["name"] == "tflite")
    assert row["flags"] == ["baseline by benchmark_model", "1 of 2 rounds", "XNNPACK off"]
    assert (
        "baseline: benchmark_model, 1 thread, XNNPACK off, results saved before; the average of 20 calls a round"
        in done.stdout
    )


@pytest.fixture
def opened(folder, monkeypatch):
    """Open the baseline of a spec in a run on this machine, as a run does before it compiles anything."""
    monkeypatch.chdir(folder)

    def opened(baseline: str, device: HostDevice = HostDevice("this CPU")):  # noqa: B008  # frozen
        Path("x.yaml").write_text(SPEC % baseline)
        with Store(Path("store")) as store:
            run = Run(
                loaded=load_spec(Path("x.yaml")),
                store=store,
                progress=Progress(),
                model=Path("model.tflite"),
                model_sha256="0" * 64,
                choice=Choice(device=device, target={}, reason=""),
                allowed=(),
            )
            return open_tool_baseline(run)

    return opened


TRIAL = "baseline (local, log: store/logs/benchmark_model.trial.txt)"


@pytest.mark.parametrize(
    ("baseline", "fails", "error", "message"),
    [
        (f"{TOOL}, flags: {{num_thread: 1}}", "", BaselineError,
         f"{TRIAL}: benchmark_model ignored what it does not know, --num_thread: did you mean "
         '"num_threads"? Correct the flag, or use a newer build of the tool'),
        (TOOL, "yes", BaselineError, f"{TRIAL}: benchmark_model failed: Failed to load model {{folder}}/model.tflite"),
        ("tool: no/benchmark_model", "", BaselineError,
         "cannot run {folder}/no/benchmark_model: No such file or directory"),
        (f"{TOOL}, through: adb", "", DeviceError,
         "baseline.through adb would measure TFLite on another device than the variants, which run on this CPU: "
         "figures of two devices never share a table"),
        ("results: [no.txt]", "", BaselineError, "cannot read the baseline's result no.txt: No such file or directory"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_tool_is_found_first(opened, folder, monkeypatch, baseline, fails, error, message):
    monkeypatch.setenv("TOOL_FAILS", fails)
    with pytest.raises(error) as caught:
        opened(baseline)
    assert str(caught.value) == message.replace("{folder}", str(folder))


def test_a_simulated_core_has_no_measured_baseline(opened):
    with pytest.raises(DeviceError) as caught:
        opened(TOOL, HostDevice("core", simulated=True))
    assert str(caught.value) == (
        "baseline.runtime benchmark_model measures, and the core counts: such figures never share a table. "
        "Choose another device, or runtime: tflite"
    )


def test_results_that_do_not_belong_to_the_spec(opened, folder):
    other = output(folder, "threads.txt", 50, num_threads="4")
    good = output(folder, "good.txt", 50)
    (folder / "again.txt").write_bytes((folder / good).read_bytes())
    (folder / "other.txt").write_text((folder / good).read_text().replace("size (MB): ", "size (MB): 1"))
    size = (folder / "model.tflite").stat().st_size / 1e6
    cases = {
        other: "threads.txt: ran with 4 threads, and the spec has 1: a comparison needs equal threads",
        "other.txt": f"other.txt: ran another model, of {10 + size:g} MB; model.tflite has {size:g} MB",
        "good.txt, again.txt": "again.txt is the same run as good.txt: each round needs a run of its own",
        "good.txt, good.txt, good.txt": "baseline.results has 3 files, and measure.rounds is 2: "
        "there is one file for each round",
    }
    for files, message in cases.items():
        with pytest.raises(BaselineError) as caught:
            opened(f"results: [{files}]")
        assert str(caught.value) == message


def test_a_proto_and_a_text_are_rounds_alike(opened, folder):
    """What a proto does not say, such as threads, is said to be unknown."""
    message = message_class()()
    message.latency_metrics.avg_ms = 0.0625
    message.misc_metrics.num_runs = 20
    (folder / "round2.pb").write_bytes(message.SerializeToString())
    saved = opened(f"results: [{output(folder, 'round1.txt', 50)}, round2.pb]")
    rounds = [saved.take_round(number) for number in range(3)]
    assert [taken and taken["samples_ms"] for taken in rounds] == [[0.051], [0.0625], None]
    assert [taken["runtime"] for taken in rounds[:2]] == [
        "benchmark_model, 1 thread, XNNPACK on, results saved before",
        "benchmark_model, threads unknown, XNNPACK unknown, results saved before",
    ]


def test_plan_names_the_tool_and_starts_nothing(folder):
    (folder / "x.yaml").write_text(SPEC % TOOL)
    done = subprocess.run(
        [sys.executable, "-m", "layoutlab", "plan", "x.yaml"], cwd=folder, capture_output=True, text=True
    )
    assert "2 rounds of 1 variant and TFLite (benchmark_model): at least 0 s\n" in done.stdout
    assert calls(folder) == []


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
