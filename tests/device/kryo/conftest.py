"""The simulated core for tests: provisioned into the cache once, then shared by all of them."""

from __future__ import annotations

import sys

import pytest

from layoutlab.device.kryo.provision import provision
from layoutlab.device.kryo.toolchain import Toolchain


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    def tell(text: str) -> None:
        print(text, file=sys.stderr)

    return provision(tell, tell)
