"""Kernels padded to whole vectors: when, and that the network around them stays as it was."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from layoutlab.engine.relax.lower import lower
from layoutlab.engine.relax.tune.tuner import extract_tasks
from layoutlab.engine.relax.whole_vectors import padded_channels, padding_flop

from .running import Built

AVX512 = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 1})
KRYO = tvm.target.Target(
    {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "kryo", "mattr": ["+neon"], "num-cores": 1}
)
SSE = tvm.target.Target({"kind": "llvm", "num-cores": 1})


@pytest.mark.parametrize(
    ("channels", "floats", "padded"),
    [(24, 16, 32), (40, 16, 48), (1000, 16, 1008), (64, 16, 64), (8, 16, 8), (17, 16, 17), (24, 8, 24), (10, 4, 12)],
)
def test_kernels_are_padded_where_little_is_wasted(channels, floats, padded):
    assert padded_channels(channels, floats) == padded


def network(channels: int, constant: bool = True) -> tvm.IRModule:
    """A 1x1 convolution from 8 channels, and a ReLU."""
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType((1, 4, 4, 8), "float32"))
    values = np.random.default_rng(1).standard_normal((1, 1, 8, channels)).astype("float32")
    kernel = relax.const(values) if constant else relax.Var("kernel", relax.TensorType(values.shape, "float32"))
    with builder.function("main", [data] if constant else [data, kernel]):
        with builder.dataflow():
            conv = builder.emit(relax.op.nn.conv2d(data, kernel, data_layout="NHWC", kernel_layout="HWIO"))
            out = builder.emit_output(relax.op.nn.relu(conv))
        builder.emit_func_output(out)
    return builder.get()


def kernel_channels(lowered: tvm.IRModule) -> set[int]:
    """Output channels of the kernels that the functions of the network read."""
    functions = [function for function in lowered.functions.values() if not isinstance(function, relax.Function)]
    infos = [
        info for function in functions for info in tvm.s_tir.meta_schedule.arg_info.ArgInfo.from_prim_func(function)
    ]
    shapes = [info.as_json()[2] for info in infos]
    return {int(shape[3]) for shape in shapes if [int(n) for n in shape[:3]] == [1, 1, 8]}


@pytest.mark.parametrize(("target", "expected"), [(AVX512, 32), (KRYO, 24)])
def test_the_kernel_fits_the_vectors_of_the_target(target, expected):
    assert kernel_channels(lower(network(24), target, pack_weights=True)) == {expected}


@pytest.mark.parametrize(("target", "expected"), [(AVX512, 2 * 4 * 4 * 8 * (32 - 24)), (KRYO, 0)])
def test_zeros_are_no_work_of_the_network(target, expected):
    lowered = lower(network(24), target, pack_weights=True)
    [task] = extract_tasks(lowered, target)
    assert padding_flop(task.dispatched[0]) == expected


def test_a_kernel_that_is_no_constant_stays():
    assert kernel_channels(lower(network(24, constant=False), AVX512, pack_weights=True)) == {24}


def test_the_channels_that_exist_are_computed(tmp_path):
    """10 channels in vectors of 4: two more are computed, and not stored."""
    assert kernel_channels(lower(network(10), SSE, pack_weights=True)) == {12}
    data = np.random.default_rng(2).standard_normal((1, 4, 4, 8)).astype("float32")
    kernel = np.random.default_rng(1).standard_normal((1, 1, 8, 10)).astype("float32")
    [found] = Built(network(10), tmp_path).run([data])
    np.testing.assert_allclose(found, np.maximum(data @ kernel[0, 0], 0), rtol=1e-5, atol=1e-6)
