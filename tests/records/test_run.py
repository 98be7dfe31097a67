"""Whole runs that go on from shipped records, borrow, and start afresh: real TVM, real LiteRT, real processes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from layoutlab.records.change import pruned
from layoutlab.records.files import read_set, write_set

from ..conftest import TINY

SPEC = """\
name: x
model: {{file: model.tflite}}
device: host
variants: [{{name: nhwc, alter_op_layout: keep}}]
tuning: {{trials: {trials}, batch: 4, population: 8}}
measure: {{rounds: 1, repeats: 1, min_repeat_ms: 1, warmup_ms: 0, retries: 0}}
"""


def run(folder: Path, trials: int, *options: str) -> dict:
    """The row of nhwc, with what was said and what is noted of its records."""
    (folder / "x.yaml").write_text(SPEC.format(trials=trials))
    done = subprocess.run(
        [sys.executable, "-m", "layoutlab", "run", "x.yaml", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    results = folder / (options[options.index("--results") + 1] if "--results" in options else "results")
    table = json.loads((results / "x" / "table.json").read_text())
    return {**table["rows"][0], "records": table["records"], "shown": done.stdout, "said": done.stderr}


def test_shipped_borrowed_and_fresh_records(tmp_path):
    shutil.copy(TINY / "tiny_conv.tflite", tmp_path / "model.tflite")
    first = run(tmp_path, 6)
    assert (first["trials"], first["ops_tuned"], first["records"]) == (6, 5, {})
    assert "records:" not in first["shown"]
    (made,) = (tmp_path / "results" / "runs" / "x").glob("nhwc-*")
    found = read_set(made)

    # Half of it is shipped with the spec, all of it lies elsewhere as records of another device. No trial is left.
    half = replace(found, records=found.records[:2])
    write_set(tmp_path / "records" / "half", half)
    write_set(tmp_path / "lent" / "set", pruned(replace(found, identity=replace(found.identity, device="another CPU"))))
    second = run(tmp_path, 2, "--results", "other", "--borrow", "lent")
    assert "variant 1 of 1 (nhwc): goes on from shipped records in records/half\n" in second["said"]
    assert (second["trials"], second["ops_tuned"], second["ops_borrowed"]) == (2, 2, 3)
    assert second["flags"] == ["borrowed (3)"]
    lines = second["shown"].splitlines()
    assert "records: nhwc from records/half" in lines
    device = found.identity.device
    assert f"borrowed: 3 ops of nhwc from lent/set, which differs in device: {device} here, another CPU there" in lines
    (folder,) = (tmp_path / "other" / "runs" / "x").glob("nhwc-*")
    assert folder.name == made.name
    assert read_set(folder) == half

    # Afresh: one trial of its own, and the rest is untuned.
    third = run(tmp_path, 1, "--results", "other", "--fresh")
    assert f"records from records/half are set aside in other/runs/x/{folder.name}/set-aside\n" in third["said"]
    assert (third["trials"], third["ops_tuned"], third["flags"], third["records"]) == (1, 1, ["4 ops untuned"], {})
    assert len(read_set(folder).records) == 1
