"""Whole experiments on tiny models: real TVM, real LiteRT, real processes."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from layoutlab.measure.cores import name_cores, usable_cores

from .conftest import ROOT, TINY, heed_interrupts

RUN = [sys.executable, "-m", "layoutlab", "run", "x.yaml"]

SPEC = """\
name: x
model: {{file: model.tflite}}
device: host
variants:
{variants}
tuning: {{trials: {trials}, batch: 4, population: 8}}
measure: {{rounds: 2, repeats: 3, min_repeat_ms: 5, warmup_ms: 10, retries: 0}}
"""


def write(folder: Path, variants: list[str], trials: int = 8, model: str = "tiny_conv") -> None:
    lines = "\n".join(f"  - {variant}" for variant in variants)
    (folder / "x.yaml").write_text(SPEC.format(variants=lines, trials=trials))
    shutil.copy(TINY / f"{model}.tflite", folder / "model.tflite")


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUN, *options], cwd=folder, capture_output=True, text=True, timeout=300)


def rows(folder: Path) -> dict[str, dict[str, str]]:
    text = (folder / "results" / "x" / "table.csv").read_text()
    return {row["variant"]: row for row in csv.DictReader(text.splitlines())}


def events(folder: Path, kind: str) -> list[dict]:
    path = folder / "results" / "runs" / "x" / "events.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [event for event in found if event["kind"] == kind]


def make_quick(results: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", "experiment", "SPEC=quick.yaml", f"RESULTS={results}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=environment,
    )


def of_quick(results: Path, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A command about the quick spec."""
    return subprocess.run(
        [sys.executable, "-m", "layoutlab", verb, "quick.yaml", "--results", str(results), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_quick_spec_through_make(tmp_path):
    """The first command of the README, as a user types it."""
    done = make_quick(tmp_path, timeout_s=600)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "quick: tiny_mobilenet.tflite, 0.0 MB"
    assert [line.split()[0] for line in lines[4:8]] == ["nhwc", "nchw", "nchw8c", "tflite"]
    table = json.loads((tmp_path / "quick" / "table.json").read_text())
    found = {row["name"]: row for row in table["rows"]}
    assert found["nhwc"]["layouts"] == {"NHWC": 12}
    assert found["nchw"]["layouts"] == {"NCHW": 12}
    assert found["nchw8c"]["layouts"] == {"NCHW3c->NCHW8c": 1, "NCHW8c": 11}
    assert [found[name]["transforms"] for name in ("nhwc", "nchw", "nchw8c")] == [0, 2, 2]
    for name in ("nhwc", "nchw", "nchw8c"):
        row = found[name]
        assert row["check"]["ok"] and row["check"]["top1"] == 5
        assert row["ops_tuned"] + row["ops_one_point"] == row["ops"]
        assert row["trials"] == 32
        assert row["latency"]["median_ms"] > 0
    assert "XNNPACK on" in table["baseline_runtime"]
    assert len(table["samples_ms"]["tflite"]) == 3

    again = make_quick(tmp_path, timeout_s=60)
    assert again.stdout == done.stdout
    stored = [json.loads(line) for line in (tmp_path / "runs" / "quick" / "events.jsonl").read_text().splitlines()]
    assert [event["kind"] for event in stored].count("built") == 3
    assert [event["kind"] for event in stored].count("samples") == 3 * 4

    written = {path.name: path.read_bytes() for path in (tmp_path / "quick").iterdir()}
    assert set(written) == {"table.md", "table.csv", "table.json", "coverage.csv", "pairs.csv", "report.html"}
    shutil.rmtree(tmp_path / "quick")
    report = of_quick(tmp_path, "report")
    assert report.stdout == done.stdout
    assert {path.name: path.read_bytes() for path in (tmp_path / "quick").iterdir()} == written

    told = [json.loads(line) for line in of_quick(tmp_path, "run", "--json").stdout.splitlines()]
    assert next(event["kind"] for event in told if event["event"] == "recorded") == "run"
    assert told[-1] == {"event": "finished", "exit_code": 0, "table": table}

    planned = of_quick(tmp_path, "plan").stdout.splitlines()
    (estimate,) = (line for line in planned if line.startswith("from nothing about "))
    assert re.fullmatch(
        r"from nothing about [^,]+, by 1 past run on such a device: tuning 3 x 32 trials \d+ (s|min), "
        r"building 3 \d+ (s|min), 12 rounds of one row \d+ (s|min)",
        estimate,
    )

    winners = of_quick(tmp_path, "winners")
    assert winners.returncode == 0, winners.stderr
    lines = winners.stdout.splitlines()
    assert lines[2].split() == ["conv", "kernel", "channels", "nhwc", "nchw", "nchw8c", "winner"]
    assert [line.split()[0] for line in lines[4:17]] == [*map(str, range(12)), "sum"]
    assert "Mixing could pay." in winners.stdout or "Mixing would not pay." in winners.stdout


def test_cores_that_there_are_not_end_a_run_before_anything_is_tuned(tmp_path):
    write(tmp_path, ["{name: nhwc}"])
    spec = tmp_path / "x.yaml"
    spec.write_text(spec.read_text().replace("measure: {", "measure: {cores: [9999], "))
    done = run(tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    there = name_cores(usable_cores())
    assert done.stderr.splitlines()[-1] == (f"error: measure.cores: core 9999 cannot be used here: there are {there}")
    assert events(tmp_path, "built") == []


HOOKS = """\
from layoutlab.hooks import ConvLayout

def raises(conv):
    raise LookupError("no layout for this one")

def leaves(conv):
    raise SystemExit(0)

def crashes(conv):
    import os
    os.abort()

def nonsense(conv):
    return "NCHW"

def pointwise_nchw(conv):
    print("hooks may print")
    if conv.kernel_size == (1, 1):
        return ConvLayout(data="NCHW", kernel="OIHW", out="NCHW")
"""


def test_a_hook_that_fails_costs_its_own_variant(tmp_path):
    write(
        tmp_path,
        [
            "{name: good, alter_op_layout: my_hooks:pointwise_nchw, tune: false}",
            "{name: raises, alter_op_layout: my_hooks:raises, tune: false}",
            "{name: leaves, alter_op_layout: my_hooks:leaves, tune: false}",
            "{name: crashes, alter_op_layout: my_hooks:crashes, tune: false}",
            "{name: nonsense, alter_op_layout: my_hooks:nonsense, tune: false}",
            "{name: absent, alter_op_layout: my_hooks:absent, tune: false}",
            "{name: nothing_to_do, convert_layout: NHWC, tune: false}",
        ],
    )
    (tmp_path / "my_hooks.py").write_text(HOOKS)
    refused = run(tmp_path)
    assert refused.returncode == 2
    assert 'hook "my_hooks:raises" is code that the spec wants to run, and it is not allowed yet' in refused.stderr
    assert not (tmp_path / "results").exists()

    done = run(tmp_path, "--allow-hooks", "my_hooks")
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    found = rows(tmp_path)
    assert {name: row["failure"] for name, row in found.items()} == {
        "good": "",
        "raises": "layout: the hook raised LookupError at conv 0: no layout for this one",
        "leaves": "layout: the process ended with code 0 and no result",
        "crashes": "layout: the process was killed by SIGABRT",
        "nonsense": "layout: the hook answered 'NCHW' at conv 0: expected a ConvLayout or None",
        "absent": 'hook: hook "my_hooks:absent": module my_hooks has no function absent',
        "nothing_to_do": "layout: NHWC was asked for, but it changed nothing: all 2 convolutions stay NHWC. "
        "Leave it out to compare the model as it is, or ask for a layout their channels allow",
        "tflite": "",
    }
    assert found["good"]["conv_layouts"] == "1 NCHW, 1 NHWC"
    assert {"untuned", "mixed-layouts"} <= set(found["good"]["flags"].split())
    assert float(found["good"]["median_ms"]) > 0
    log = tmp_path / "results" / "runs" / "x" / "logs" / "raises.log"
    assert "LookupError" in log.read_text()

    (tmp_path / "my_hooks.py").write_text(HOOKS.replace('raise LookupError("no layout for this one")', "return None"))
    write(
        tmp_path,
        [
            "{name: good, alter_op_layout: my_hooks:pointwise_nchw, tune: false}",
            "{name: raises, alter_op_layout: my_hooks:raises, tune: false}",
        ],
    )
    (tmp_path / "pyproject.toml").write_text('[tool.layoutlab]\nallow-hooks = ["my_hooks"]\n')
    done = run(tmp_path)
    assert done.returncode == 0
    assert rows(tmp_path)["raises"]["conv_layouts"] == "2 NHWC"
    page = (tmp_path / "results" / "x" / "table.md").read_text()
    sha256 = hashlib.sha256((tmp_path / "my_hooks.py").read_bytes()).hexdigest()
    assert f"- hook of raises: file with sha256 {sha256}" in page.splitlines()


def test_wrong_outputs_are_never_ranked(tmp_path):
    """A tolerance that nothing meets: the row shows WRONG and no latency, and the exit code says so."""
    write(tmp_path, ["{name: nchw, convert_layout: NCHW, tune: false}"])
    with open(tmp_path / "x.yaml", "a") as spec:
        spec.write("check: {rtol: 0, atol: 0}\n")
    done = run(tmp_path)
    row = rows(tmp_path)["nchw"]
    assert done.returncode == 4
    assert (row["verdict"], row["median_ms"], row["outputs_ok"]) == ("wrong outputs", "", "False")
    assert "values differ by more than 0 + 0 x |TFLite|" in row["failure"]
    assert [event["row"] for event in events(tmp_path, "samples")] == ["tflite", "tflite"]


def wait_for(condition, process: subprocess.Popen, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_an_interrupted_run_goes_on_where_it_was_and_with_a_larger_budget_from_there(tmp_path):
    """With Ctrl-C; `test_kill.py` has the ways that leave a run no time to say anything."""
    variants = ["{name: nhwc, alter_op_layout: keep}"]
    write(tmp_path, variants, trials=24)
    records = tmp_path / "results" / "runs" / "x"

    def stored() -> int:
        return sum(len(path.read_text().splitlines()) for path in records.glob("nhwc-*/records.jsonl"))

    process = subprocess.Popen(
        RUN, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    )
    wait_for(lambda: stored() >= 2, process)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert stdout == ""
    before = stored()
    assert 2 <= before < 24
    assert process.returncode == 130
    assert stderr.splitlines()[-1] == (
        "interrupted. Every finished trial and round is kept under results/runs; to go on, run the same command again"
    )

    for trials in (24, 28):
        write(tmp_path, variants, trials=trials)
        done = run(tmp_path)
        assert done.returncode == 0, done.stderr
        assert stored() == trials
        assert rows(tmp_path)["nhwc"]["trials"] == str(trials)
    assert len(list(records.glob("nhwc-*"))) == 1


def test_a_rerun_measures_nothing_and_a_moved_folder_still_works(tmp_path):
    write(tmp_path, ["{name: nhwc, alter_op_layout: keep, tune: false}"])
    first = run(tmp_path)
    assert first.returncode == 0, first.stderr
    second = run(tmp_path)
    assert second.stdout == first.stdout
    assert len(events(tmp_path, "samples")) == 4
    assert len(events(tmp_path, "built")) == 1

    moved = tmp_path.with_name("moved folder ü")
    tmp_path.rename(moved)
    third = run(moved)
    moved.rename(tmp_path)
    assert third.returncode == 0, third.stderr


def test_a_model_without_convolutions_runs_and_says_so(tmp_path):
    write(tmp_path, ["{name: as_imported, tune: false}"], model="tiny_dense")
    assert run(tmp_path).returncode == 0
    assert rows(tmp_path)["as_imported"]["conv_layouts"] == "no conv2d"


def test_a_dynamic_batch_is_bound_by_the_spec_and_refused_without(tmp_path):
    write(tmp_path, ["{name: nchw, convert_layout: NCHW, tune: false}"], model="tiny_dynamic")
    done = run(tmp_path)
    assert done.returncode == 2
    assert (
        "has a dynamic shape, and layouts are chosen for fixed ones. Bind a dynamic batch with model.batch"
        in done.stderr
    )

    text = (tmp_path / "x.yaml").read_text()
    (tmp_path / "x.yaml").write_text(text.replace("model.tflite}", "model.tflite, batch: 2}"))
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert rows(tmp_path)["nchw"]["conv_layouts"] == "2 NCHW"
    page = (tmp_path / "results" / "x" / "table.md").read_text()
    assert ", batch bound to 2" in page


def test_a_quantised_model_is_shown_as_what_it_is(tmp_path):
    write(tmp_path, ["{name: nchw8c, alter_op_layout: nchwc, tune: false}"], model="tiny_int8")
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "int8 computed as float32" in done.stdout
