"""Processes in which candidates are built and run: what becomes of those that crash, hang or fail."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from layoutlab.engine.relax.tune.executors import WarmExecutor, as_finished
from layoutlab.errors import StageError


def _crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _hang() -> None:
    time.sleep(60)


def _fail() -> None:
    raise RuntimeError("the first line says it\nand this follows")


def _look() -> tuple[str, bool, bool]:
    gpu = sys.modules.get("tvm.s_tir.tensor_intrin.cuda")
    return tempfile.gettempdir(), "tvm" in sys.modules, gpu is not None and not hasattr(gpu, "__file__")


def test_a_call_that_crashes_hangs_or_fails_costs_itself_only(tmp_path):
    executor = WarmExecutor(1, 5.0, str(tmp_path))
    try:
        finished = sorted(as_finished([executor.submit(f) for f in (_crash, _hang, _fail, _look)], "the run"))
    finally:
        executor.shutdown(cancel_futures=True)
    assert finished == [
        (0, None, "the run crashed its process (exit code -11)"),
        (1, None, "the run took longer than 5 s"),
        (2, None, "the run failed: RuntimeError: the first line says it"),
        # Files lie in the folder, and the process started with TVM, without its GPU intrinsics.
        (3, (str(tmp_path), True, True), None),
    ]


def test_calls_that_nobody_works_on_are_given_up():
    lost: Future[int] = Future()
    done: Future[int] = Future()
    done.set_result(7)
    assert list(as_finished([lost, done], "the build", stall_s=1.0)) == [
        (1, 7, None),
        (0, None, "the build gave no sign of life for 1 s"),
    ]
    assert lost.cancelled()


def test_nothing_is_given_up_when_those_who_worked_on_it_are_gone():
    def gone() -> None:
        raise StageError("tune", "all gone")

    with pytest.raises(StageError, match="all gone"):
        list(as_finished([Future()], "the build", stall_s=0.1, require_alive=gone))


def test_a_shut_executor_leaves_nobody_waiting(tmp_path: Path):
    executor = WarmExecutor(1, 60.0, str(tmp_path))
    hanging = executor.submit(_hang)
    executor.shutdown(cancel_futures=True)
    assert hanging.cancelled()
    with pytest.raises(RuntimeError):
        executor.submit(_hang)
