"""The kernels that measure peaks: what LLVM makes of them for three kinds of vectors, and what they compute."""

from __future__ import annotations

import re

import numpy as np
import pytest

from layoutlab.device.host import HostDevice, llvm_target
from layoutlab.engine.relax.peaks import build_kernels, kernel
from layoutlab.engine.relax.tvm_cpu import tvm
from layoutlab.roofline.kernels import FMA, READ, STREAM_VECTORS, TRIAD, TURNS, fma_chains, passes

TARGETS = {
    "avx2": {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "haswell"},
    "avx512": {
        "kind": "llvm",
        "mtriple": "x86_64-linux-gnu",
        "mcpu": "skylake-avx512",
        "mattr": ["-prefer-256-bit"],
    },
    "neon": {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "kryo", "mattr": ["+neon"]},
}
# A multiply-add of whole vectors, all in registers; its first group is what it adds to.
MULTIPLY_ADD = {
    "avx2": r"vfmadd231ps\t%ymm\d+, %ymm\d+, %ymm(\d+)$",
    "avx512": r"vfmadd231ps\t%zmm\d+, %zmm\d+, %zmm(\d+)$",
    "neon": r"fmla\tv(\d+)\.4s, v\d+\.4s, v\d+\.4s$",
}
# A load of a whole vector (or two), alone or as part of an addition.
LOAD = {
    "avx2": r"vaddps\t-?\d*\(.*\), %ymm",
    "avx512": r"vaddps\t-?\d*\(.*\), %zmm",
    "neon": r"ldp\tq\d+, q\d+",
}
COUNTING = re.compile(r"(dec|inc|add|sub|cmp|subs|adds)[lq]?\t[^(\[]*$")


def loops(name: str, which: str, threads: int = 1) -> list[list[str]]:
    """The instructions of every loop without another loop or a jump in it."""
    target = tvm.target.Target(TARGETS[name])
    text = tvm.compile(kernel(which, target, threads), target=target).mod.inspect_source("s")
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not re.match(r"\.(loc|p2align|Ltmp)|[#/;]", line)]
    found, begun, label = [], [], ""
    for line in lines:
        if match := re.match(r"(\.LBB\w+):", line):
            begun, label = [], match[1]
        elif re.match(r"(j\w+|b\.\w+|cbn?z)\s", line):
            if label and line.endswith(label):
                found.append(begun)
            begun, label = [], ""
        else:
            begun.append(line)
    return found


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", TARGETS)
def test_the_arithmetic_is_whole_multiply_adds_in_registers_and_nothing_else(name, threads):
    (loop,) = [loop for loop in loops(name, FMA, threads) if any(re.match(MULTIPLY_ADD[name], line) for line in loop)]
    sums = [match[1] for line in loop if (match := re.match(MULTIPLY_ADD[name], line))]
    rest = [line for line in loop if not re.match(MULTIPLY_ADD[name], line)]
    chains = fma_chains(16 if name == "avx2" else 32)
    assert len(set(sums)) == chains, "each chain has a register of its own"
    assert len(sums) % chains == 0
    assert all(COUNTING.match(line) for line in rest), rest
    assert len(rest) <= 2


@pytest.mark.parametrize("name", TARGETS)
def test_a_stream_is_loads_of_whole_vectors(name):
    best = max(loops(name, READ), key=lambda loop: sum(bool(re.match(LOAD[name], line)) for line in loop))
    loads = sum(bool(re.match(LOAD[name], line)) for line in best)
    assert loads >= (STREAM_VECTORS // 2 if name == "neon" else STREAM_VECTORS)


@pytest.fixture(scope="module")
def host() -> tvm.target.Target:
    return tvm.target.Target({**llvm_target(), "num-cores": 1})


def run(target: tvm.target.Target, which: str, threads: int, *values: np.ndarray) -> list[np.ndarray]:
    tensors = [tvm.runtime.tensor(value) for value in values]
    tvm.compile(kernel(which, target, threads), target=target)["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]


@pytest.mark.parametrize("threads", [1, 2])
def test_all_threads_do_all_the_work_that_is_counted(host, threads, tmp_path):
    """What a call computes tells how often it did it."""
    built = build_kernels(host, threads, "host", tmp_path)
    (_, (_, floats)), (_, sums_shape) = built[0].arguments
    half = np.full((2, floats), 0.5, "float32")
    _, sums = run(host, FMA, threads, half, np.zeros(sums_shape, "float32"))
    assert np.array_equal(sums, np.full(sums_shape, TURNS / 4))
    assert built[0].flop == 2 * TURNS * sums.size

    shape = (threads, 1000, floats * STREAM_VECTORS)
    ones = np.ones(shape, "float32")
    _, sums = run(host, READ, threads, ones, np.zeros((threads, shape[2]), "float32"))
    assert np.array_equal(sums, np.full_like(sums, 1000 * passes(1, ones.nbytes)))
    a, b = np.random.default_rng(1).random((2, *shape), dtype="float32")
    assert np.allclose(run(host, TRIAD, threads, a, b, ones)[2], a + b / 2)


def test_kernels_fill_the_working_sets_that_they_are_for(host, tmp_path):
    for each in build_kernels(host, 2, "host", tmp_path):
        if each.name == FMA:
            continue
        streams = each.arguments[:1] if each.name == READ else each.arguments
        held = sum(4 * int(np.prod(shape)) for _, shape in streams)
        assert 0.8 * each.working_set_bytes < held <= each.working_set_bytes
        assert each.bytes % held == 0 and each.bytes > 0


def test_times_come_for_each_kernel_and_repeat(host, tmp_path):
    calls = [(each.library, each.arguments) for each in build_kernels(host, 1, "host", tmp_path)[:3]]
    options = {"repeats": 2, "min_repeat_ms": 0, "cores": "big", "threads": 1}
    taken = HostDevice("this CPU").time_kernels(calls, options, tmp_path / "log")
    assert [len(samples) for samples in taken] == [2, 2, 2]
    assert all(seconds > 0 for samples in taken for seconds in samples)
