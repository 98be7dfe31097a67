"""Candidates on devices over RPC: side by side, each with its own outcome, and what is left when devices go away."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from layoutlab.device.rpc.address import RpcAddress
from layoutlab.engine.base import TuningOptions
from layoutlab.errors import StageError

from ..agents import LAYOUTLAB, serving, wait_until

FLOATS = 1024
OPTIONS = TuningOptions(
    trials=4,
    search="evolutionary",
    cost_model="xgb",
    pack_weights=True,
    batch=4,
    population=8,
    seed=1,
    repeats=1,
    min_repeat_ms=0,
)


def candidate(calls: str | None = None, *arguments: int):
    """A candidate for c = a + b, or one that calls a function of libc instead."""
    from tvm import te

    from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm

    def element(i):
        if calls is None:
            return a[i] + b[i]
        return a[i] + tvm.tirx.call_extern("int32", calls, *arguments).astype("float32")

    a, b = te.placeholder((FLOATS,), name="a"), te.placeholder((FLOATS,), name="b")
    extent = FLOATS if calls is None else 1
    function = te.create_prim_func([a, b, te.compute((extent,), element, name="c")])
    schedule = tvm.s_tir.Schedule(function.with_attr("global_symbol", "main"))
    return meta_schedule.MeasureCandidate(schedule, meta_schedule.arg_info.ArgInfo.from_prim_func(function))


@dataclass
class Fleet:
    """A tracker's two devices, to be ended as the test likes."""

    address: RpcAddress
    agents: list[subprocess.Popen[str]]
    said: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with ExitStack() as stack:
        _, port = stack.enter_context(serving([*LAYOUTLAB, "tracker", "--port", "0"], "tracker"))
        options = ["--port", "0", "--tracker", f"127.0.0.1:{port}", "--key", "pixel"]
        agents = [stack.enter_context(serving([*LAYOUTLAB, "agent", *options], "agent"))[0] for _ in range(2)]
        yield Fleet(RpcAddress(tracker=f"127.0.0.1:{port}", key="pixel", timeout_s=8), agents)


@contextmanager
def pool(fleet: Fleet, folder: Path):
    from layoutlab.engine.relax.tune.rpc_pool import RpcPool
    from layoutlab.engine.relax.tvm_cpu import tvm

    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    with RpcPool(target, folder, OPTIONS, fleet.address, fleet.said.append) as opened:
        yield opened


def test_each_candidate_has_its_own_outcome_whatever_the_others_do(fleet, tmp_path):
    with pool(fleet, tmp_path) as opened:
        batch = [candidate(), candidate("abort"), candidate("pause"), candidate()]
        outcomes = opened.submit(batch)()
    assert [outcome.error and outcome.error.split(":")[0] for outcome in outcomes] == [
        None,
        "the run crashed its process on the device (SIGABRT)",
        "the run took longer than 8 s",
        None,
    ]
    assert 0 < outcomes[0].seconds < 1 and 0 < outcomes[3].seconds < 1
    assert fleet.said == []
    assert list(tmp_path.iterdir()) == []


def signal_all(agent: subprocess.Popen[str], number: signal.Signals) -> None:
    """To an agent and all processes of it: its own group does not have those of verbs."""
    for process in [psutil.Process(agent.pid), *psutil.Process(agent.pid).children(recursive=True)]:
        process.send_signal(number)


def test_a_device_that_says_nothing_any_more_is_given_up(fleet, tmp_path, monkeypatch):
    from layoutlab.device.rpc import address, tracker
    from layoutlab.engine.relax.tune import rpc_pool

    monkeypatch.setattr(rpc_pool, "_TRY_AGAIN_S", (0.1,))
    monkeypatch.setattr(address, "GRACE_S", 1.0)
    with pool(fleet, tmp_path) as opened:
        assert all(outcome.seconds for outcome in opened.submit([candidate(), candidate()])())
        collect = opened.submit([candidate("sleep", 1) for _ in range(2)])
        # As when its cable is pulled: nobody closes the connection.
        signal_all(fleet.agents[0], signal.SIGSTOP)
        outcomes = collect()
        assert all(outcome.seconds and outcome.seconds > 0.9 for outcome in outcomes), outcomes
        assert fleet.said == ["a device was lost, 1 of 2 go on: the device gave no answer for 9 s"]
    signal_all(fleet.agents[0], signal.SIGCONT)
    fleet.said.clear()
    where, key = fleet.address.tracker, fleet.address.key
    wait_until(lambda: tracker.state_of(where, key).free == 2, "both devices are free again")


def test_the_others_go_on_when_a_device_goes_away_and_the_last_one_is_missed(fleet, tmp_path, monkeypatch):
    from layoutlab.engine.relax.tune import rpc_pool

    monkeypatch.setattr(rpc_pool, "_TRY_AGAIN_S", (0.1, 0.1))
    with pool(fleet, tmp_path) as opened:
        assert all(outcome.seconds for outcome in opened.submit([candidate(), candidate()])())
        # Both devices are busy with a slow one when the first goes away.
        collect = opened.submit([candidate("sleep", 1) for _ in range(4)])
        fleet.agents[0].send_signal(signal.SIGKILL)
        outcomes = collect()
        assert all(outcome.seconds and outcome.seconds > 0.9 for outcome in outcomes), outcomes
        (said,) = fleet.said
        assert re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", said).startswith(
            "a device was lost, 1 of 2 go on: the device at ADDRESS went away: "
        )
        collect = opened.submit([candidate("sleep", 1)])
        fleet.agents[1].send_signal(signal.SIGKILL)
        with pytest.raises(StageError) as caught:
            collect()
        text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", str(caught.value))
        assert text.startswith("tune: no device is left at rpc://ADDRESS/pixel: the device at ADDRESS went away: ")
        assert text.endswith("Every finished trial is kept: attach a device and run again")
        with pytest.raises(StageError, match="no device is left"):
            opened.submit([candidate()])
