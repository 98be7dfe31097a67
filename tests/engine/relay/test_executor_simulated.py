"""What a Relay-era TVM built, on simulated cores: counts that repeat, and candidates for its tuner."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from layoutlab.device.kryo.core import PricedCore
from layoutlab.device.kryo.toolchain import Toolchain
from layoutlab.engine.relay.executor import pricing
from layoutlab.engine.relay.executor.link import compile_runtime, link_artifact, link_objects
from layoutlab.engine.relay.executor.runner import KIND
from layoutlab.errors import StageError
from layoutlab.measure.inputs import load_sets, make_inputs, save_sets

from ...conftest import TINY
from ...device.kryo.conftest import toolchain
from ..running import run_tflite
from .test_executor import BUILT, CALLS, INPUT, made_by_tvm

__all__ = ["toolchain"]

KRYO = {"mtriple": "aarch64-linux-gnu"}
MATMUL = [("float32", (64, 256)), ("float32", (256, 64)), ("float32", (64, 64))]


@pytest.fixture(scope="module")
def core(toolchain: Toolchain) -> Iterator[PricedCore]:
    with PricedCore(toolchain, sys.stderr) as core:
        yield core


def test_an_inference_computes_what_tflite_computes_and_repeats_exactly(core, tmp_path):
    library = link_artifact(
        made_by_tvm(tmp_path, "aarch64"), target=KRYO, device_kind="kryo", inputs=[INPUT], tvm="0.16"
    )
    runner = {"kind": KIND, "path": str(library), "threads": 1}
    inputs = tmp_path / "inputs.npz"
    save_sets(inputs, make_inputs([{"shape": (1, 16, 16, 8), "dtype": "float32"}], (-1, 1), 2, 1))

    found = core.run_inference(runner, inputs, 120)
    assert found.runtime == "TVM 0.16, 1 thread"
    assert found.cycles.totals.unpriced == 0
    assert core.run_inference(runner, inputs, 120) == found
    names = {name for name, _ in found.functions}
    assert {f"tvmgen_default_{name}" for name in CALLS} <= names
    assert {"[executor]", "[libc.so.6]"} <= names
    assert sum(cycles.totals.instructions for _, cycles in found.functions) == found.cycles.totals.instructions

    on_core = core.core(KIND)
    with on_core.session(120) as session:
        placed = {"runner": on_core.placed_runner(runner), "inputs": on_core.place(inputs, "inputs.npz")}
        session.do("compute_outputs", **placed, outputs=str(tmp_path / "outputs.npz"))
    for values, (output,) in zip(load_sets(inputs), load_sets(tmp_path / "outputs.npz"), strict=True):
        np.testing.assert_allclose(output, run_tflite(TINY / "tiny_conv.tflite", values)[0], atol=1e-6)


def test_a_candidate_repeats_and_one_that_is_wrong_says_why(core, tmp_path):
    runtime = compile_runtime(tmp_path, target=KRYO, device_kind="kryo", graph=False)
    link_objects(tmp_path / "candidate.so", [BUILT / "matmul.aarch64.o", runtime], "kryo")
    found = core.run_relay_candidate(tmp_path / "candidate.so", "default_function", MATMUL, 60)
    assert core.run_relay_candidate(tmp_path / "candidate.so", "default_function", MATMUL, 60) == found
    # A vector of four multiply-adds at least for each four of them.
    assert found.totals.instructions > 64 * 64 * 256 / 4
    with pytest.raises(StageError, match=r"^run: the library has no function other: build the variant again$"):
        core.run_relay_candidate(tmp_path / "candidate.so", "other", MATMUL, 60)
    # What the compiled code itself checks of its arguments.
    with pytest.raises(StageError, match=r"^run: default_function failed: Assert fail: num_args == 3"):
        core.run_relay_candidate(tmp_path / "candidate.so", "default_function", MATMUL[:2], 60)


def test_objects_come_alone_in_archives_and_linked(toolchain, tmp_path):
    runtime = compile_runtime(tmp_path, target=KRYO, device_kind="kryo", graph=False)
    data = (BUILT / "matmul.aarch64.o").read_bytes()
    with tarfile.open(tmp_path / "candidate.tar", "w") as archive:
        member = tarfile.TarInfo("../../lib0.o")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    made = []
    for at, library in enumerate([BUILT / "matmul.aarch64.o", tmp_path / "candidate.tar"]):
        (tmp_path / str(at)).mkdir()
        made.append(pricing._linked(library, runtime, tmp_path / str(at)).read_bytes())
    assert made[0] == made[1]
    assert pricing._linked(Path("some.so"), runtime, tmp_path) == Path("some.so")


def ask(*lines: str) -> list[dict]:
    """The answers of the program, by their ids."""
    command = [sys.executable, "-m", "layoutlab.engine.relay.executor.pricing"]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=400, check=True)
    return sorted(map(json.loads, done.stdout.splitlines()), key=lambda answer: str(answer["id"]))


def test_requests_that_make_no_sense_are_answered(toolchain):
    wrong = "expected {id, library, function, args: [[shape, dtype], ...]}, one line of JSON: KeyError('args')"
    lines = ['{"id": 1}', '{"id": 2, "library": "/none.o", "function": "f", "args": []}']
    assert ask(*lines) == [{"id": 1, "error": wrong}, {"id": 2, "error": "/none.o: there is no such file"}]


@pytest.mark.slow
def test_many_candidates_at_once(toolchain):
    library = str(BUILT / "matmul.aarch64.o")
    arguments = [[shape, dtype] for dtype, shape in MATMUL]
    lines = [
        json.dumps({"id": at, "library": library, "function": name, "args": arguments})
        for at, name in enumerate(["default_function", "default_function", "other"])
    ]
    first, second, other = ask(*lines)
    assert first["us"] == second["us"] > 0
    assert (
        other["error"]
        == "the simulated run failed: StageError: run: the library has no function other: build the variant again"
    )
