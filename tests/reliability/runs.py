"""Whole runs of a tiny network, and what is in their folders."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..conftest import TINY

LAYOUTLAB = [sys.executable, "-m", "layoutlab"]
SPEC = """\
name: x
model: {{file: model.tflite}}
device: host
variants:
{variants}
tuning: {{trials: {trials}, batch: 4, population: 8}}
measure: {{rounds: {rounds}, repeats: 2, min_repeat_ms: 2, warmup_ms: 2}}
"""
TUNED = "{name: nhwc, alter_op_layout: keep}"
UNTUNED = "{name: nchw, convert_layout: NCHW, tune: false}"


def write(folder: Path, variants: Sequence[str], trials: int = 8, rounds: int = 2) -> Path:
    """A spec and its model in `folder`; returns the folder."""
    folder.mkdir(exist_ok=True)
    lines = "\n".join(f"  - {variant}" for variant in variants)
    (folder / "x.yaml").write_text(SPEC.format(variants=lines, trials=trials, rounds=rounds), encoding="utf-8")
    shutil.copy(TINY / "tiny_conv.tflite", folder / "model.tflite")
    return folder


def layoutlab(
    folder: Path, *arguments: str, before: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command line in `folder`; `before` is a command that runs it. No traceback is ever shown."""
    done = subprocess.run(
        [*before, *LAYOUTLAB, *arguments],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        env={**os.environ, **(environment or {})},
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done


def events(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The events of the run, of one kind or all; a line that was torn is none."""
    path = folder / "results" / "runs" / "x" / "events.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    found = [json.loads(line) for line in lines]
    return [event for event in found if kind in (None, event["kind"])]


def rows(folder: Path) -> dict[str, dict[str, str]]:
    """The rows of the table by name."""
    text = (folder / "results" / "x" / "table.csv").read_text(encoding="utf-8")
    return {row["variant"]: row for row in csv.DictReader(text.splitlines())}


def tables(folder: Path) -> dict[str, bytes]:
    """The files of the table and their contents."""
    return {path.name: path.read_bytes() for path in (folder / "results" / "x").iterdir()}


def counted(folder: Path) -> dict[str, int]:
    """How often what takes time was done."""
    kinds = [event["kind"] for event in events(folder)]
    return {kind: kinds.count(kind) for kind in ("baseline", "built", "samples")}


def trials(folder: Path) -> int:
    """Whole records of the tuned variant."""
    found = list((folder / "results" / "runs" / "x").glob("nhwc-*/records.jsonl"))
    assert len(found) <= 1
    return sum(path.read_bytes().count(b"\n") for path in found)
