"""A tracker with two agents, for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from layoutlab.device.rpc.address import RpcAddress

from ..agents import LAYOUTLAB, running, serving

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
