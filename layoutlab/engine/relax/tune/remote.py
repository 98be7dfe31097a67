"""What the pool's processes do with one candidate for a device over RPC: lease a device once, and measure there."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layoutlab.device.candidate_timing import Timing
from layoutlab.device.rpc.address import FREE_S, RpcAddress
from layoutlab.errors import DeviceError, DeviceLost

if TYPE_CHECKING:
    from layoutlab.device.rpc.remote import Remote
    from layoutlab.engine.relax.tune.candidates import Arguments

# This process' own device.
_taken: dict[RpcAddress, Remote] = {}


def measure_remote(
    library: bytes, arguments: Arguments, timing: Timing, options: Mapping[str, Any], address: RpcAddress
) -> float:
    """Median seconds of one call on this process' own device. Raises DeviceLost when there is none, or not any more."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(library)
        file.flush()
        try:
            return _device(address).measure_candidate(Path(file.name), arguments, timing, options)
        except DeviceLost:
            _give_back(address)
            raise


def find_device(address: RpcAddress, wait_s: float) -> None:
    """Lease this process' device. Raises DeviceLost when none becomes free within `wait_s`."""
    _device(address, wait_s)


def _device(address: RpcAddress, wait_s: float = FREE_S) -> Remote:
    from layoutlab.device.rpc.remote import open_remote

    try:
        if address not in _taken:
            _taken[address] = open_remote(address, wait_s=wait_s)
        return _taken[address]
    except DeviceLost:
        raise
    except DeviceError as error:
        raise DeviceLost(str(error)) from error


def _give_back(address: RpcAddress) -> None:
    if remote := _taken.pop(address, None):
        remote.close()
