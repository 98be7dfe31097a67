"""What a Relay-era TVM built, on simulated cores: counts that repeat, and candidates for its tuner."""

from __future__ import annotations

import io
import json
import platform
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from layoutlab.device.candidate_timing import Timing
from layoutlab.device.kryo.core import PricedCore
from layoutlab.device.kryo.toolchain import Toolchain
from layoutlab.device.rpc.address import RpcAddress
from layoutlab.engine.relay.executor import candidates, pricing
from layoutlab.engine.relay.executor.link import link_artifact
from layoutlab.engine.relay.executor.runner import KIND
from layoutlab.measure.inputs import load_sets, make_inputs, save_sets

from ...conftest import TINY
from ...device.agents import running
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
    assert set(CALLS) <= names
    assert {"[executor]", "[libc.so.6]"} <= names
    assert sum(cycles.totals.instructions for _, cycles in found.functions) == found.cycles.totals.instructions

    on_core = core.core(KIND)
    with on_core.session(120) as session:
        placed = {"runner": on_core.placed_runner(runner), "inputs": on_core.place(inputs, "inputs.npz")}
        session.do("compute_outputs", **placed, outputs=str(tmp_path / "outputs.npz"))
    for values, (output,) in zip(load_sets(inputs), load_sets(tmp_path / "outputs.npz"), strict=True):
        np.testing.assert_allclose(output, run_tflite(TINY / "tiny_conv.tflite", values)[0], atol=1e-6)


def test_candidates_come_alone_and_in_archives(toolchain, tmp_path):
    data = (BUILT / "matmul.aarch64.o").read_bytes()
    with tarfile.open(tmp_path / "candidate.tar", "w") as archive:
        member = tarfile.TarInfo("../../lib0.o")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    made = [
        pricing.linked(
            pricing.Request(id=1, library=str(library), function="default_function", arguments=[]),
            KRYO,
            "kryo",
            str(tmp_path),
        )
        for library in (BUILT / "matmul.aarch64.o", tmp_path / "candidate.tar")
    ]
    assert made[0] == made[1]


def ask(*lines: str, options: Sequence[str] = candidates.command(None, Path())) -> list[dict]:
    """The answers of the program, by their ids."""
    done = subprocess.run(options, input="\n".join(lines), capture_output=True, text=True, timeout=400, check=True)
    return sorted(map(json.loads, done.stdout.splitlines()), key=lambda answer: str(answer["id"]))


def request(number: int, library: str, function: str, arguments: list[tuple[str, tuple[int, ...]]]) -> str:
    described = [[shape, dtype] for dtype, shape in arguments]
    return json.dumps({"id": number, "library": str(BUILT / library), "function": function, "args": described})


def test_requests_that_make_no_sense_are_answered():
    wrong = "expected {id, library, function, args: [[shape, dtype], ...]}, one line of JSON: KeyError('args')"
    lines = ['{"id": 1}', '{"id": 2, "library": "/none.o", "function": "f", "args": []}']
    assert ask(*lines) == [{"id": 1, "error": wrong}, {"id": 2, "error": "/none.o: there is no such file"}]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="built/ has candidates for the core and for x86-64")
def test_candidates_are_measured_on_a_device_over_rpc(tmp_path):
    softmax, vectors = "tvmgen_default_fused_nn_softmax", [("float32", (1, 16))] * 2
    with running() as port:
        devices = candidates.Devices(
            address=RpcAddress(agents=(f"127.0.0.1:{port}",)),
            target={"mtriple": "x86_64-linux-gnu"},
            timing=Timing(repeats=1, min_repeat_ms=0, cold_cache=False),
            cores="all",
            threads=1,
        )
        good, few = ask(
            request(1, "tiny_conv.x86_64.o", softmax, vectors),
            request(2, "tiny_conv.x86_64.o", softmax, vectors[:1]),
            options=candidates.command(devices, tmp_path),
        )
    assert good["us"] > 0
    said = "the run failed: StageError: run: RuntimeError: Assert fail: num_args == 2, "
    assert few["error"] == f"{said}{softmax}: num_args should be 2"


@pytest.mark.slow
def test_a_device_that_is_not_there_ends_it(tmp_path):
    devices = candidates.Devices(
        address=RpcAddress(agents=("127.0.0.1:9",)),
        target={"mtriple": "x86_64-linux-gnu"},
        timing=Timing(repeats=1, min_repeat_ms=0, cold_cache=False),
        cores="all",
        threads=1,
    )
    asked = request(1, "tiny_conv.x86_64.o", "tvmgen_default_fused_nn_softmax", [("float32", (1, 16))] * 2)
    done = subprocess.run(
        candidates.command(devices, tmp_path), input=asked, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert "error: no RPC server answers at 127.0.0.1:9: " in done.stderr


@pytest.mark.slow
def test_many_candidates_at_once(toolchain):
    first, second, few = ask(
        request(1, "matmul.aarch64.o", "default_function", MATMUL),
        request(2, "matmul.aarch64.o", "default_function", MATMUL),
        request(3, "matmul.aarch64.o", "default_function", MATMUL[:2]),
    )
    # A vector of four multiply-adds for each four of them at least, at 2.45 GHz and at most two a cycle.
    assert first["us"] == second["us"] > 64 * 64 * 256 / 4 / 2 / 2450
    said = "the simulated run failed: StageError: run: RuntimeError: Assert fail: num_args == 3, "
    assert few["error"] == f"{said}default_function: num_args should be 3"
