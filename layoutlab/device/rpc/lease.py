"""The device that this process has leased. Imports TVM: for worker processes."""

from __future__ import annotations

import contextlib
from typing import Any

from layoutlab.device.rpc.address import GRACE_S, RpcAddress
from layoutlab.device.rpc.remote import Remote, open_remote
from layoutlab.device.rpc.tracker import patiently

_taken: Remote | None = None


def take(address: RpcAddress, prefer: str | None) -> dict[str, Any]:
    """Lease a device (see `open_remote`) until this process ends; returns its description.

    One was there when the run began, so it is waited for.
    """
    global _taken
    _taken = patiently(lambda: open_remote(address, prefer), GRACE_S)
    return _taken.description


def taken() -> Remote:
    """The device leased before."""
    assert _taken is not None, "no device was leased in this process"
    return _taken


def describe(address: RpcAddress, cores: str | list[int], threads: int) -> dict[str, Any]:
    """The description of a device that has these cores for so many threads; it is given back at once."""
    with contextlib.closing(open_remote(address)) as remote:
        remote.require_cores(cores, threads)
        return remote.description
