"""Candidates on simulated cores, several side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutlab.device.kryo.toolchain import Toolchain
from layoutlab.engine.base import TuningOptions

from ..device.kryo.conftest import toolchain

__all__ = ["toolchain"]

TARGET = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "kryo", "mattr": ["+neon"], "num-cores": 1}
FLOATS = 16 * 1024
OPTIONS = TuningOptions(
    trials=4, search="evolutionary", cost_model="xgb", pack_weights=True, batch=4, population=8, seed=1
)


def candidate(*, vectors: bool = False, bound: str | None = None):
    """A candidate for c = a + b, its loop vectorised or bound to a thread of a GPU."""
    from tvm import te

    from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm

    a, b = te.placeholder((FLOATS,), name="a"), te.placeholder((FLOATS,), name="b")
    function = te.create_prim_func([a, b, te.compute((FLOATS,), lambda i: a[i] + b[i], name="c")])
    schedule = tvm.s_tir.Schedule(function.with_attr("global_symbol", "main"))
    (loop,) = schedule.get_loops(schedule.get_sblock("c"))
    if bound:
        schedule.bind(loop, bound)
    if vectors:
        schedule.vectorize(schedule.split(loop, [None, 4])[1])
    return meta_schedule.MeasureCandidate(schedule, meta_schedule.arg_info.ArgInfo.from_prim_func(function))


@pytest.fixture
def pool(toolchain: Toolchain, tmp_path: Path):
    from layoutlab.engine.relax.tune.pool import open_pool
    from layoutlab.engine.relax.tvm_cpu import tvm

    with open_pool("kryo", tvm.target.Target(TARGET), tmp_path, OPTIONS) as opened:
        yield opened


def test_a_batch_in_order_each_with_its_own_outcome(pool, tmp_path):
    vectors, plain, broken = candidate(vectors=True), candidate(), candidate(bound="threadIdx.x")
    outcomes = pool.submit([vectors, plain, broken, vectors])()
    assert outcomes[2].seconds is None
    assert outcomes[2].error == "the build failed: InternalError: not implemented"
    # Whichever core a candidate ran on.
    assert outcomes[0] == outcomes[3]
    # 4,096 vectors take 1 to 10 us at 2.45 GHz, more with the misses; LLVM makes vectors of the plain loop itself.
    assert 1e-6 < outcomes[0].seconds < 1e-3
    assert 1e-6 < outcomes[1].seconds < 1e-3
    assert list(tmp_path.iterdir()) == []
