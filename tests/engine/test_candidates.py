"""One candidate built and timed on this machine."""

from __future__ import annotations

from contextlib import closing

import pytest

from layoutlab.device.candidate_timing import Timing, cold_calls
from layoutlab.engine.relax.tune.candidates import build_candidate, measure_candidate
from layoutlab.engine.relax.tvm_cpu import tvm

from ..device.agents import running

FLOATS = 1024


def timing(**changes) -> Timing:
    return Timing(**({"repeats": 3, "min_repeat_ms": 15, "cold_cache": True} | changes))


@pytest.fixture(scope="module")
def library() -> bytes:
    from tvm import te

    a, b = te.placeholder((FLOATS,), name="a"), te.placeholder((FLOATS,), name="b")
    function = te.create_prim_func([a, b, te.compute((FLOATS,), lambda i: a[i] + b[i], name="c")])
    mod = tvm.s_tir.Schedule(function.with_attr("global_symbol", "main")).mod
    return build_candidate(tvm.ir.save_json(mod), {"kind": "llvm"})


@pytest.mark.parametrize("cold_cache", [False, True])
def test_a_candidate_is_timed(library, cold_cache):
    assert library.startswith(b"\x7fELF")
    seconds = measure_candidate(library, [("float32", (FLOATS,))] * 3, timing(cold_cache=cold_cache), "all", 1)
    assert 0 < seconds < 1


def test_a_device_times_it_as_well(library, tmp_path):
    from layoutlab.device.agent_session import AgentSession

    (tmp_path / "candidate.so").write_bytes(library)
    arguments = {"library": "candidate.so", "arguments": [("float32", (FLOATS,))] * 3, "repeats": 3, "min_repeat_ms": 1}
    with running() as port, closing(AgentSession("127.0.0.1", port)) as agent:
        agent.upload(tmp_path / "candidate.so", "candidate.so")
        for cold_cache in (False, True):
            seconds = agent.do("measure_candidate", **arguments, cold_cache=cold_cache, cores=[0], threads=1)
            assert 0 < seconds < 1


def test_cold_calls_fill_the_time_of_warm_repeats():
    assert cold_calls(timing(), 1e-3) == 45
    # A fast candidate: more calls add nothing to the median, and emptying caches takes time as well.
    assert cold_calls(timing(), 1e-6) == 200
    # A slow one has its repeats.
    assert cold_calls(timing(), 1.0) == 3
    assert cold_calls(timing(min_repeat_ms=0), 1e-6) == 3
    assert cold_calls(timing(repeats=5), 0.0) == 200


def test_a_candidate_gets_more_time_where_more_is_measured():
    assert timing(repeats=1, min_repeat_ms=0).timeout_s == 30
    assert timing(repeats=100, min_repeat_ms=1000).timeout_s == 430
