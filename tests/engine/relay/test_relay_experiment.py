"""Relay and Relax variants in one table: real TVMs, each in its own interpreter, and LiteRT."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ...conftest import TINY

SPEC = """\
name: x
model: {file: model.tflite}
device: host
engine: relay
variants:
  - {name: nchw4c, alter_op_layout: {hook: nchwc, block: 4}, tune: false}
  - {name: stock, tune: false, fuse: false}
  - {name: relax, alter_op_layout: keep, tune: false, engine: relax}
measure: {rounds: 2, repeats: 2, min_repeat_ms: 5, warmup_ms: 10, retries: 0}
"""


def layoutlab(folder: Path, python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LAYOUTLAB_RELAY_PYTHON": python}
    command = [sys.executable, "-m", "layoutlab", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_both_engines_stand_in_one_table(relay_python: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(SPEC)
    shutil.copy(TINY / "tiny_conv.tflite", tmp_path / "model.tflite")
    done = layoutlab(tmp_path, relay_python, "run", "x.yaml")
    assert done.returncode == 0, done.stderr
    table = json.loads((tmp_path / "results" / "x" / "table.json").read_text())
    rows = {row["name"]: row for row in table["rows"]}
    assert set(rows["nchw4c"]["layouts"]) == {"NCHW4c"}
    assert rows["nchw4c"]["flags"][:1] == ["Relay"]
    assert rows["stock"]["flags"][:3] == ["Relay", "TVM's own hook", "fusion off"]
    assert "Relay" not in rows["relax"]["flags"]
    for name in ("nchw4c", "stock", "relax"):
        assert rows[name]["check"]["ok"], name
        assert rows[name]["latency"]["median_ms"] > 0
    assert "nchw4c, stock: compiled by Relay of TVM 0." in done.stdout
    # A table says nothing of where on this machine that is.
    assert set(table["run"]["engines"]) == {"nchw4c", "stock"}
    assert relay_python not in json.dumps(table)
    # Nothing is left to do.
    again = layoutlab(tmp_path, relay_python, "run", "x.yaml")
    assert again.returncode == 0
    assert "built in" not in again.stderr


def test_without_the_interpreter_a_run_ends_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(SPEC)
    shutil.copy(TINY / "tiny_conv.tflite", tmp_path / "model.tflite")
    done = layoutlab(tmp_path, "/nowhere/python", "run", "x.yaml")
    assert done.returncode == 3
    assert done.stderr == (
        "error: LAYOUTLAB_RELAY_PYTHON names /nowhere/python, which is no program: name the python of a Relay-era TVM\n"
    )
