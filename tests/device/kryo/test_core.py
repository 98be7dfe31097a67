"""A simulated core with its agent: figures that repeat, and candidates that crash or hang."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from layoutlab.device.kryo.core import PricedCore, SimulatedCore
from layoutlab.device.kryo.toolchain import Toolchain
from layoutlab.device.on_device import compute_outputs
from layoutlab.errors import DeviceError, StageError
from layoutlab.measure.inputs import load_sets, make_inputs, save_sets

from ...conftest import TINY

TFLITE = {"kind": "tflite", "path": str(TINY / "tiny_mobilenet.tflite"), "threads": 1}
TARGET = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "kryo", "mattr": ["+neon"], "num-cores": 1}
FLOATS = 64 * 1024


@pytest.fixture(scope="module")
def core(toolchain: Toolchain) -> Iterator[PricedCore]:
    with PricedCore(toolchain) as core:
        yield core


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    path = tmp_path / "inputs.npz"
    save_sets(path, make_inputs([{"shape": (1, 32, 32, 3), "dtype": "float32"}], (-1, 1), 2, 1))
    return path


def library(toolchain: Toolchain, folder: Path, body: str) -> Path:
    """An aarch64 library that does `body` when it is loaded."""
    source, path = folder / "library.c", folder / "library.so"
    source.write_text(f"__attribute__((constructor)) static void start(void) {{ {body} }}\n")
    command = [toolchain.zig, "cc", "-target", "aarch64-linux-gnu", "-nostdlib", "-shared", "-fPIC", "-o", path, source]
    subprocess.run(command, check=True)
    return path


def test_one_inference_of_tflite_repeats_exactly_in_any_process_of_any_core(core, toolchain, inputs):
    first = core.run_inference(TFLITE, inputs, 60)
    assert first.runtime == "LiteRT 1.4.0, 1 thread, XNNPACK on"
    assert first.cycles.totals.unpriced == 0
    assert first.cycles.totals.instructions > 100_000
    assert core.run_inference(TFLITE, inputs, 60) == first
    with PricedCore(toolchain) as other:
        assert other.run_inference(TFLITE, inputs, 60) == first


def test_the_parts_of_a_process_sum_exactly_to_its_whole(core, inputs):
    found = core.run_inference(TFLITE, inputs, 60)
    names = [name for name, _ in found.functions]
    assert "[_pywrap_tensorflow_interpreter_wrapper.so]" in names[0] or names[0].startswith("[")
    assert "[libc.so.6]" in names
    for field in dataclasses.fields(found.cycles.totals):
        parts = sum(getattr(cycles.totals, field.name) for _, cycles in found.functions)
        assert parts == getattr(found.cycles.totals, field.name), field.name


def test_its_outputs_are_those_of_this_machine(core, inputs, tmp_path):
    """Another LiteRT on another architecture: the same to rounding."""
    with core.core().session(60) as session:
        session.do("compute_outputs", runner=TFLITE, inputs=str(inputs), outputs=str(tmp_path / "far.npz"))
    compute_outputs(TFLITE, str(inputs), str(tmp_path / "near.npz"))
    for far, near in zip(load_sets(tmp_path / "far.npz"), load_sets(tmp_path / "near.npz"), strict=True):
        np.testing.assert_allclose(far[0], near[0], atol=1e-5)


@pytest.fixture(scope="module")
def adding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A candidate as the tuner builds it: c = a + b over FLOATS floats."""
    import tvm
    from tvm import te

    from layoutlab.engine.relax.tune.candidates import build_candidate

    a, b = te.placeholder((FLOATS,), name="a"), te.placeholder((FLOATS,), name="b")
    function = te.create_prim_func([a, b, te.compute((FLOATS,), lambda i: a[i] + b[i], name="c")])
    schedule = tvm.s_tir.Schedule(function.with_attr("global_symbol", "main"))
    _, inner = schedule.split(schedule.get_loops(schedule.get_sblock("c"))[0], [None, 4])
    schedule.vectorize(inner)
    folder = tmp_path_factory.mktemp("adding")
    path = folder / "candidate.so"
    path.write_bytes(build_candidate(tvm.ir.save_json(schedule.mod), TARGET, "kryo"))
    return path


def test_a_candidate_costs_what_can_be_reasoned(core, adding):
    cycles = core.run_candidate(adding, [("float32", (FLOATS,))] * 3, 60)
    lines = 3 * FLOATS * 4 // 64
    # Every line of the three arrays is read or written once, from cold caches; the call itself touches a few more.
    assert lines <= cycles.totals.l1_misses < lines + 1000
    # qemu moves a vector of 16 bytes in two accesses.
    assert 6 * FLOATS // 4 <= cycles.totals.accesses < 6 * FLOATS // 4 + 10_000
    # Two loads and one store a vector at one a cycle, or more with what the loop adds, but no scalar code.
    assert 1 <= cycles.compute / (FLOATS // 4) < 6
    assert core.run_candidate(adding, [("float32", (FLOATS,))] * 3, 60) == cycles


def test_a_candidate_that_crashes_costs_itself_only(core, adding, toolchain, tmp_path):
    with pytest.raises(StageError) as caught:
        core.run_candidate(library(toolchain, tmp_path, "__builtin_trap();"), [], 60)
    assert str(caught.value) == "run: crashed its process on the device (SIGTRAP)"
    assert core.run_candidate(adding, [("float32", (FLOATS,))] * 3, 60)


def test_a_candidate_that_hangs_is_ended(core, adding, toolchain, tmp_path):
    started = time.monotonic()
    with pytest.raises(StageError) as caught:
        core.run_candidate(library(toolchain, tmp_path, "for (;;) {}"), [], 3)
    assert str(caught.value) == "run: took longer than 3 s"
    assert time.monotonic() - started < 20
    assert core.run_candidate(adding, [("float32", (FLOATS,))] * 3, 60)


def test_a_core_that_was_lost_is_started_again(core, inputs):
    before = core.run_inference(TFLITE, inputs, 60)
    lost = core.core()
    os.kill(lost._agent.pid, signal.SIGKILL)
    lost._agent.wait()
    assert core.run_inference(TFLITE, inputs, 60) == before


def test_a_core_that_does_not_start_says_so(toolchain):
    with pytest.raises(DeviceError) as caught:
        SimulatedCore(dataclasses.replace(toolchain, python=Path("/nowhere/python3")))
    assert str(caught.value) == (
        "the simulated Kryo core does not start: it ended with code 1. Its output is in the job's log; "
        "layoutlab doctor shows what the core is made of"
    )


def test_nothing_is_left_behind(toolchain):
    with PricedCore(toolchain) as core:
        pid, folder = core.core()._agent.pid, core.core()._counts
        assert folder.exists()
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
