"""The command line as users meet it: whole outputs, exit codes, nothing heavy imported."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from layoutlab.spec.schema import json_schema

from .conftest import ROOT, TINY


def layoutlab(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "layoutlab", *arguments], cwd=cwd, capture_output=True, text=True, timeout=120
    )


SPEC = """\
name: x
model: {file: model.tflite}
device: host
variants:
  - {name: nhwc, alter_op_layout: keep}
  - {name: nchw8c, convert_layout: NCHW, alter_op_layout: {hook: nchwc, block: 8}}
  - {name: untuned, tune: false}
tuning: {trials: 20}
measure: {rounds: 2, repeats: 3, min_repeat_ms: 10, warmup_ms: 10, retries: 0}
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "x.yaml").write_text(SPEC)
    shutil.copy(TINY / "tiny_conv.tflite", tmp_path / "model.tflite")
    return tmp_path


def test_validate(folder):
    done = layoutlab("validate", "x.yaml", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "x.yaml: fine, 3 variants\n", "")


def test_plan_says_what_a_run_would_do(folder):
    done = layoutlab("plan", "x.yaml", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout
        == f"""\
x: {folder / "model.tflite"}
target host, device host, 1 thread

variant    convert_layout    alter_op_layout    trials
---------  ----------------  -----------------  --------
nhwc       -                 keep               20
nchw8c     NCHW              nchwc(block=8)     20
untuned    -                 -                  untuned

tuning: evolutionary search, cost model xgb
outputs checked on 5 inputs
2 rounds of 3 variants and TFLite: at least 0 s
no estimate of its time: no past run on such a device under results/runs
writes results/x/table.md, table.csv, table.json, coverage.csv, pairs.csv, report.html; keeps records in results/runs/x/
"""
    )


@pytest.mark.parametrize(
    ("device", "protocol"),
    [
        ("kryo", "one counted inference of 1 variant and TFLite on the simulated Kryo core\n"),
        (
            "auto",
            "one counted inference of 1 variant and TFLite on the simulated Kryo core; where it cannot be had,\n"
            "18 rounds of 1 variant and TFLite: at least 54 s\n",
        ),
        ("host", "18 rounds of 1 variant and TFLite: at least 54 s\n"),
    ],
)
def test_plan_for_a_kryo_says_whether_it_measures_or_counts(folder, device, protocol):
    kryo = "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu -mcpu=kryo -mattr=+neon -num-cores=1"
    (folder / "x.yaml").write_text(
        f"name: x\nmodel: {{file: model.tflite}}\ntarget: {kryo}\ndevice: {device}\n"
        "variants: [{name: nhwc, alter_op_layout: keep}]\n"
    )
    done = layoutlab("plan", "x.yaml", cwd=folder)
    assert done.stdout.splitlines()[1] == f"target {kryo}, device {device}, 1 thread"
    assert f"outputs checked on 5 inputs\n{protocol}no estimate of its time: no past run" in done.stdout


def test_a_mistake_in_the_spec_is_shown_where_it_is(folder):
    (folder / "x.yaml").write_text(SPEC.replace("variants:", "varients:").replace("trials: 20", "trials: many"))
    for command in ("validate", "plan", "run"):
        done = layoutlab(command, "x.yaml", cwd=folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert (
            done.stderr
            == """\
x.yaml:4:1: unknown key "varients": did you mean "variants"?
  4 | varients:
    | ^
x.yaml:8:18: tuning.trials: expected a whole number from 1 to 1000000, found "many"
  8 | tuning: {trials: many}
    |                  ^
"""
        )
    assert not (folder / "results").exists()


def test_a_spec_that_is_not_there(folder):
    done = layoutlab("run", "y", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'no spec "y": SPEC names a file under experiments/ (.yaml may be left out) or a path\n'


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda model: model.unlink(), "error: no model file at {model}\n"),
        (lambda model: model.write_bytes(b""), "error: {model} is empty\n"),
        (
            lambda model: model.write_bytes(b"not a model at all"),
            "error: {model} is not a TFLite flatbuffer: bytes 4..8 should be b'TFL3', but are b'a mo'\n",
        ),
    ],
)
def test_a_broken_model_is_one_clear_message(folder, break_it, message):
    model = folder / "model.tflite"
    break_it(model)
    done = layoutlab("run", "x.yaml", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == message.format(model=model)


def test_another_sha256_shows_both(folder):
    (folder / "x.yaml").write_text(SPEC.replace("model.tflite", f"model.tflite, sha256: {'0' * 64}"))
    done = layoutlab("run", "x.yaml", cwd=folder)
    found = hashlib.sha256((folder / "model.tflite").read_bytes()).hexdigest()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: {folder / 'model.tflite'} is not the file the spec names:\n"
        f"  expected sha256 {'0' * 64}\n"
        f"  found sha256    {found}\n"
        "If the file was meant to change, put the new hash into the spec; if not, restore the file.\n"
    )


@pytest.mark.parametrize("length", [12, 11000])
def test_a_truncated_model_ends_with_a_message_whatever_reads_it_first(folder, length):
    model = folder / "model.tflite"
    model.write_bytes(model.read_bytes()[:length])
    done = layoutlab("run", "x.yaml", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    message = f"error: {model}: parsing the TFLite flatbuffer: the file is malformed (error: unpack_from requires "
    assert done.stderr.splitlines()[-1].startswith(message)


def test_report_before_any_run(folder):
    done = layoutlab("report", "x.yaml", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: results/runs/x holds no finished run: run the spec first\n"


def test_usage(folder):
    done = layoutlab("rum", "x.yaml", cwd=folder)
    assert done.returncode == 2
    assert "invalid choice: 'rum'" in done.stderr
    assert layoutlab("--help", cwd=folder).returncode == 0


def test_the_light_commands_import_nothing_heavy(folder):
    code = (
        "import sys\nfrom layoutlab.cli import main\n"
        "for command in ('validate', 'plan'):\n    assert main([command, 'x.yaml']) == 0\n"
        "main(['schema'])\n"
        "print([name for name in ('tvm', 'numpy', 'scipy', 'ai_edge_litert', 'xgboost') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_shipped_schema_is_fresh():
    stored = json.loads((ROOT / "experiments" / "spec.schema.json").read_text())
    assert stored == json_schema(), "run: make schema"


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_spec_is_valid_and_its_model_is_there_or_can_be_built(path):
    assert path.read_text().startswith("# yaml-language-server: $schema=spec.schema.json\n")
    from layoutlab.model.build import BUILDERS
    from layoutlab.model.file import read_model
    from layoutlab.spec.load import load_spec

    loaded = load_spec(path)
    assert loaded.spec.name == path.stem
    if loaded.model_path is None:
        assert loaded.spec.model.build in BUILDERS
    else:
        read_model(loaded.model_path, loaded.spec.model.sha256)
