"""A tracker with two agents, for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from layoutlab.device.rpc.address import RpcAddress

from ..agents import LAYOUTLAB, plain_server, running, serving, wait_until

KEY = "pixel"


@pytest.fixture(scope="package")
def pixels() -> Iterator[RpcAddress]:
    """The address of two devices, dev1 and dev2."""
    with ExitStack() as stack:
        _, port = stack.enter_context(serving([*LAYOUTLAB, "tracker", "--port", "0"], "tracker"))
        tracker = f"127.0.0.1:{port}"
        for name in ("dev1", "dev2"):
            stack.enter_context(running("--tracker", tracker, "--key", KEY, "--name", name))
        yield RpcAddress(tracker=tracker, key=KEY, timeout_s=20)


@pytest.fixture(scope="module")
def plain(pixels) -> Iterator[RpcAddress]:
    """A plain TVM RPC server at the tracker."""
    # Imports TVM: not while tests are collected.
    from layoutlab.device.rpc.tracker import summary

    def is_known() -> bool:
        return any(state.key == "plain" and state.devices for state in summary(pixels.tracker))

    with plain_server("--tracker", pixels.tracker, "--key", "plain"):
        wait_until(is_known, "the plain server registers")
        yield replace(pixels, key="plain", timeout_s=5)
    wait_until(lambda: not is_known(), "the plain server is forgotten")
