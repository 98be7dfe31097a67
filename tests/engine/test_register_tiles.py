"""Register tiles: every point of their spaces computes the convolution, and keeps its accumulators in registers."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import s_tir, te, topi

from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.layout.convert import apply_plan
from layoutlab.engine.relax.layout.packed import conv2d_nchwc, depthwise_conv2d_nchwc
from layoutlab.engine.relax.layout.plan import plan
from layoutlab.engine.relax.lower import lower
from layoutlab.engine.relax.tune.register_tiles import Registers, register_tiles
from layoutlab.engine.relax.tune.space import registers_of, space_of
from layoutlab.engine.relax.tune.tuner import extract_tasks

from ..conftest import TINY
from .running import LAYOUTS

SSE = Registers(floats=4, count=16, inputs=1, cores=1)
HOST = tvm.target.Target({"kind": "llvm", "num-cores": 1})
KRYO = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "kryo", "mattr": ["+neon"], "num-cores": 1}
HASWELL = {"kind": "llvm", "mcpu": "haswell", "num-cores": 1}


def conv_nhwc(height, width, inputs, outputs, kernel, stride, pad):
    data = te.placeholder((1, height, width, inputs), name="data")
    weights = te.placeholder((kernel, kernel, inputs, outputs), name="weights")
    conv = topi.nn.conv2d_nhwc(data, weights, stride, (pad, pad, pad, pad), 1)
    return finish(data, weights, conv, (1, 1, 1, outputs))


def depthwise_nhwc(height, width, channels, kernel, stride, pad):
    data = te.placeholder((1, height, width, channels), name="data")
    weights = te.placeholder((kernel, kernel, channels, 1), name="weights")
    padded = topi.nn.pad(data, (0, pad, pad, 0), (0, pad, pad, 0), name="pad_temp") if pad else data
    ky, kx, one = (te.reduce_axis((0, n), name) for n, name in ((kernel, "ky"), (kernel, "kx"), (1, "one")))
    out = [(extent + 2 * pad - kernel) // stride + 1 for extent in (height, width)]
    conv = te.compute(
        (1, *out, channels),
        lambda n, y, x, c: te.sum(
            padded[n, y * stride + ky, x * stride + kx, c + one] * weights[ky, kx, c, one], axis=[ky, kx, one]
        ),
        name="group_conv2d_nhwc",
    )
    return finish(data, weights, conv, (1, 1, 1, channels))


def conv_nchwc(height, width, inputs, outputs, block, kernel, stride, pad):
    data = te.placeholder((1, inputs // block, height, width, block), name="data")
    weights = te.placeholder((outputs // block, inputs, kernel, kernel, block), name="weights")
    conv = conv2d_nchwc(data, weights, (stride, stride), (pad, pad, pad, pad), (1, 1))
    return finish(data, weights, conv, (1, outputs // block, 1, 1, block))


def depthwise_nchwc(height, width, channels, block, kernel, stride, pad):
    data = te.placeholder((1, channels // block, height, width, block), name="data")
    weights = te.placeholder((channels // block, 1, kernel, kernel, block), name="weights")
    conv = depthwise_conv2d_nchwc(data, weights, (stride, stride), (pad, pad, pad, pad), (1, 1))
    return finish(data, weights, conv, (1, channels // block, 1, 1, block))


def finish(data, weights, conv, bias_shape):
    """The convolution with a bias and a ReLU behind it, as a module."""
    bias = te.placeholder(bias_shape, name="bias")
    out = topi.nn.relu(topi.add(conv, bias))
    return tvm.IRModule({"main": te.create_prim_func([data, weights, bias, out]).with_attr("tirx.noalias", True)})


sizes, taps, pads = st.integers(3, 9), st.sampled_from([1, 3]), st.integers(0, 1)
CONVOLUTIONS = {
    "nhwc": lambda draw: conv_nhwc(
        *(draw(s) for s in (sizes, sizes, st.integers(1, 9), st.integers(1, 20), taps, st.integers(1, 2), pads))
    ),
    "depthwise nhwc": lambda draw: depthwise_nhwc(
        *(draw(s) for s in (sizes, sizes, st.integers(1, 20), st.just(3), st.integers(1, 2), pads))
    ),
    "nchwc": lambda draw: conv_nchwc(
        *(draw(s) for s in (sizes, sizes, st.sampled_from([4, 8, 12]), st.sampled_from([4, 8, 12]), st.just(4))),
        *(draw(s) for s in (taps, st.integers(1, 2), pads)),
    ),
    "depthwise nchwc": lambda draw: depthwise_nchwc(
        *(draw(s) for s in (sizes, sizes, st.sampled_from([8, 16]), st.just(8), st.just(3), st.integers(1, 2), pads))
    ),
}


def random_point(mod, space, seed):
    """The space's schedule with new random decisions."""
    sch = s_tir.Schedule(mod, seed=seed)
    s_tir.schedule.Trace(space.trace.insts, {}).apply_to_schedule(sch, remove_postproc=False)
    return sch.mod


def widest_point(mod, space):
    """The space's schedule with its largest tile, the reduction not unrolled."""
    columns, *others = [inst for inst in space.trace.insts if str(inst.kind.name) == "SampleCategorical"]
    decisions = {columns: len(columns.attrs[0]) - 1, **dict.fromkeys(others, 0)}
    sch = s_tir.Schedule(mod)
    s_tir.schedule.Trace(space.trace.insts, decisions).apply_to_schedule(sch, remove_postproc=False)
    return sch.mod


def build(mod, target=HOST):
    with target:
        return tvm.driver.build(mod, target=target)


def compute(mod, arrays):
    library = build(mod)
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    library["main"](*tensors)
    return tensors[-1].numpy()


def random_arrays(mod, seed):
    generator = np.random.default_rng(seed)
    shapes = [info.as_json()[2] for info in s_tir.meta_schedule.arg_info.ArgInfo.from_prim_func(mod["main"])]
    return [generator.standard_normal([int(n) for n in shape]).astype("float32") for shape in shapes]


@pytest.mark.parametrize("kind", CONVOLUTIONS)
@settings(max_examples=4, deadline=None, derandomize=True)
@given(drawn=st.data(), seed=st.integers(1, 2**31 - 1))
def test_every_point_computes_the_convolution(kind, drawn, seed):
    mod = CONVOLUTIONS[kind](drawn.draw)
    arrays = random_arrays(mod, seed)
    expected = compute(mod, arrays)
    spaces = register_tiles(mod, SSE)
    assert spaces
    for space in random.Random(seed).sample(spaces, min(2, len(spaces))):
        found = compute(random_point(mod, space, seed), arrays)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


ENDINGS = {
    # Its value is used twice.
    "prelu": lambda conv, slopes, other: te.compute(
        conv.shape,
        lambda *at: tvm.tirx.if_then_else(conv[at] > 0.0, conv[at], topi.multiply(conv, slopes)[at]),
        name="prelu",
    ),
    # The other side of the addition is computed in the same function.
    "residual": lambda conv, slopes, other: topi.add(topi.add(conv, slopes), topi.nn.relu(other)),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_ending_is_computed_with_the_result(ending):
    data, weights = te.placeholder((1, 7, 8, 6), name="data"), te.placeholder((3, 3, 6, 8), name="weights")
    slopes, other = te.placeholder((1, 1, 1, 8), name="slopes"), te.placeholder((1, 7, 8, 8), name="other")
    out = ENDINGS[ending](topi.nn.conv2d_nhwc(data, weights, 1, 1, 1), slopes, other)
    function = te.create_prim_func([data, weights, slopes, other, out]).with_attr("tirx.noalias", True)
    mod = tvm.IRModule({"main": function})
    arrays = random_arrays(mod, 1)
    expected = compute(mod, arrays)
    spaces = register_tiles(mod, SSE)
    assert spaces
    for space in spaces[::3]:
        np.testing.assert_allclose(compute(random_point(mod, space, 1), arrays), expected, rtol=1e-4, atol=1e-5)


# Those with register tiles.
@pytest.mark.parametrize("layout", ["nhwc", "nchw8c"])
@pytest.mark.parametrize("model", sorted(path.stem for path in TINY.glob("*.tflite")))
def test_every_task_of_every_network_has_a_design_space(model, layout):
    convert_layout, hook = LAYOUTS[layout]
    imported = canonicalise(import_model((TINY / f"{model}.tflite").read_bytes()))
    converted, _ = apply_plan(imported, plan(imported, convert_layout, hook))
    for task in extract_tasks(lower(converted, HOST, pack_weights=True), HOST):
        assert space_of(task.dispatched[0], HOST) != 0, task.task_name


@pytest.mark.parametrize("pad", [0, 1])
def test_a_convolution_that_nothing_follows(pad):
    """As it is where nothing is fused."""
    data, weights = te.placeholder((1, 6, 7, 8)), te.placeholder((3, 3, 8, 16))
    packed, packed_weights = te.placeholder((1, 2, 6, 7, 4)), te.placeholder((4, 8, 3, 3, 4))
    for tensors in (
        [data, weights, topi.nn.conv2d_nhwc(data, weights, 1, (pad, pad, pad, pad), 1)],
        [packed, packed_weights, conv2d_nchwc(packed, packed_weights, (1, 1), (pad, pad, pad, pad), (1, 1))],
    ):
        mod = tvm.IRModule({"main": te.create_prim_func(tensors).with_attr("tirx.noalias", True)})
        arrays = random_arrays(mod, 1)
        for space in register_tiles(mod, SSE)[::8]:
            found = compute(random_point(mod, space, 1), arrays)
            np.testing.assert_allclose(found, compute(mod, arrays), rtol=1e-4, atol=1e-5)


def test_more_cores_share_the_outermost_loop():
    mod = conv_nhwc(8, 8, 8, 16, 3, 1, 1)
    for space in register_tiles(mod, Registers(floats=4, count=16, inputs=1, cores=2)):
        assert space.mod["main"].script().count("T.parallel(") == 1
    assert "T.parallel(" not in register_tiles(mod, SSE)[0].mod["main"].script()


def test_convolutions_in_groups_and_other_functions_have_no_register_tiles():
    data, weights = te.placeholder((1, 6, 6, 8)), te.placeholder((3, 3, 4, 8))
    grouped = topi.nn.group_conv2d_nhwc(data, weights, 1, 1, 1, 2)
    pooled = topi.nn.pool2d(data, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max", layout="NHWC")
    for tensors in ([data, weights, grouped], [data, pooled]):
        assert register_tiles(tvm.IRModule({"main": te.create_prim_func(tensors)}), SSE) == []


# Spaces that differ in the order of their loops only.
ORDERS = 3

# For each CPU how multiply-adds and spills of vectors look in assembly.
SPILLS = {
    "haswell": (HASWELL, "vfmadd", r"vmov\w+\s.*\(%rsp"),
    "kryo": (KRYO, "fmla", r"(str|ldr|stp|ldp)\s+q\d+.*\[(sp|x29)"),
}


def innermost_loops(assembly: str) -> list[str]:
    """The code between each label and a jump back to it, where no other label stands between."""
    parts = re.split(r"\n(\.LBB\w+):", assembly)
    loops = []
    for label, code in zip(parts[1::2], parts[2::2], strict=True):
        back = re.search(rf"\t(j\w+|b\.\w+|cbn?z\t\w+,)\s+{re.escape(label)}\b", code)
        if back:
            loops.append(code[: back.start()])
    return loops


@pytest.mark.parametrize(
    ("cpu", "layout", "spaces"),
    [
        ("haswell", "nhwc", slice(None)),
        ("haswell", "nchwc", slice(None)),
        ("kryo", "nhwc", slice(None)),
        # LLVM unrolls the block of four inputs and loads them all ahead: only tiles two vectors wide have registers
        # for that. The others are left to the search, which times them.
        ("kryo", "nchwc", slice(ORDERS, 2 * ORDERS)),
    ],
)
def test_accumulators_stay_in_registers(cpu, layout, spaces):
    """In the loop over the reduction, the one with multiply-adds, no vector goes to the stack or comes from it."""
    description, multiply_add, spill = SPILLS[cpu]
    target = tvm.target.Target(description)
    registers = registers_of(target)
    block = registers.floats
    mod = conv_nhwc(14, 14, 48, 48, 1, 1, 0) if layout == "nhwc" else conv_nchwc(14, 14, 48, 48, block, 1, 1, 0)
    for space in register_tiles(mod, registers)[spaces]:
        assembly = build(widest_point(mod, space), target).inspect_source("asm")
        body = max(innermost_loops(assembly), key=lambda part: part.count(multiply_add))
        assert body.count(multiply_add) >= 4
        assert not re.findall(spill, body)
