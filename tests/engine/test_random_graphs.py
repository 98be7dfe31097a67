"""Every layout of every random graph computes what numpy computes.

LAYOUTLAB_GRAPHS sets the number of graphs (100 unless it is set, and 900 others in a slow test); a failure is shrunk to
a small one and printed.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings

from layoutlab import hooks
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.layout.convert import apply_plan
from layoutlab.engine.relax.layout.plan import plan
from layoutlab.engine.relax.lower import lower
from layoutlab.engine.relax.tvm_cpu import tvm

from .random_graphs import Step, build, graphs

GRAPHS = int(os.environ.get("LAYOUTLAB_GRAPHS", "100"))
PARTS = 6
MORE_GRAPHS = 900
# Compiled without optimisation: it is the layouts that are tested, not LLVM, and it is four times as fast.
TARGET = tvm.target.Target({"kind": "llvm", "opt-level": 0, "num-cores": 1})


def mixed(conv):
    """A layout that changes from one convolution to the next."""
    return [hooks.keep, hooks.nchw, hooks.Nchwc(4), hooks.Nchwc(8, pad=True)][conv.index % 4](conv)


VARIANTS = {
    "nhwc": (None, hooks.keep),
    "nchw": ("NCHW", None),
    "nchw4c": ("NCHW", hooks.Nchwc(4)),
    "nchw8c": (None, hooks.Nchwc(8)),
    "nchw8c padded": ("NCHW", hooks.Nchwc(8, pad=True)),
    "mixed": (None, mixed),
}


def run(mod, value: np.ndarray) -> list[np.ndarray]:
    """The outputs, run by LLVM's just-in-time compiler: nothing has to be linked."""
    executable = tvm.compile(lower(mod, TARGET, pack_weights=False), target=TARGET)
    result = tvm.relax.VirtualMachine(executable.mod, tvm.cpu())["main"](tvm.runtime.tensor(value))
    return [tensor.numpy() for tensor in ([result] if hasattr(result, "numpy") else result)]


def compare(graph) -> None:
    """Build the graph, lay it out in every way, and compare what each computes with numpy."""
    mod, value, expected = build(graph)
    imported = canonicalise(mod)
    for name, (convert_layout, hook) in VARIANTS.items():
        converted, transforms = apply_plan(imported, plan(imported, convert_layout, hook))
        if name == "nhwc":
            assert converted is imported and not transforms
        for found, wanted in zip(run(converted, value), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4, err_msg=name, equal_nan=False)


def step(kind: str, channels: int = 6, padding=(0, 0, 0, 0), choice: int = 0) -> Step:
    return Step(kind, channels, (3, 3), (1, 1), (1, 1), padding, choice)


# What random graphs come across too seldom: whatever reads the channels of a convolution that were padded.
CONV, CONV_12 = step("conv", 6), step("conv", 12, padding=(1, 1, 1, 1))
ON_PADDED_CHANNELS = {
    "mean over channels": [CONV, step("mean", choice=1)],
    "mean over everything": [CONV, step("mean", choice=3)],
    "softmax over channels": [CONV, step("softmax", choice=1), CONV_12],
    "concat": [CONV_12, step("relu"), step("concat", choice=1), CONV],
    "channels added by pad": [CONV, step("pad", choice=7), CONV_12],
    "a block added by pad": [CONV, step("pad", choice=5), CONV_12],
    "a broadcast constant": [CONV, step("constant", padding=(0, 1, 1, 0), choice=5), CONV_12],
    "hard swish": [CONV, step("hard_swish"), CONV_12],
    "squeeze and excite": [CONV_12, step("squeeze", 6), CONV],
    "depthwise": [CONV, step("depthwise"), step("clip"), CONV_12],
    "pools": [CONV, step("max_pool"), step("avg_pool"), CONV_12],
    "resize": [CONV, step("resize"), CONV_12],
}


@pytest.mark.parametrize("steps", ON_PADDED_CHANNELS.values(), ids=ON_PADDED_CHANNELS)
def test_padded_channels_never_show(steps):
    compare(((9, 8, 5), steps, 1))


def compare_drawn(seed_: int, count: int) -> None:
    """Compare `count` graphs that are drawn with a seed."""

    @seed(seed_)
    @settings(
        max_examples=max(1, count),
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(graphs())
    def compare_any(graph):
        compare(graph)

    compare_any()


@pytest.mark.parametrize("part", range(PARTS))
def test_every_layout_computes_the_same(part):
    compare_drawn(part, GRAPHS // PARTS)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS, 2 * PARTS))
def test_every_layout_of_many_more_computes_the_same(part):
    compare_drawn(part, MORE_GRAPHS // PARTS)
