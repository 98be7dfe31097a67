"""A leased device, and how one is leased. Imports TVM: for worker processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tvm import rpc

from layoutlab.agent import DO
from layoutlab.device.candidate_timing import Timing
from layoutlab.device.rpc import tracker
from layoutlab.device.rpc.address import FREE_S, RpcAddress
from layoutlab.device.rpc.leased_agent import LeasedAgent
from layoutlab.device.rpc.plain_server import PlainServer
from layoutlab.errors import DeviceBusy, DeviceError, first_message
from layoutlab.roofline.kernels import Call


class Remote(Protocol):
    """A device that is ours until `close`.

    There are two kinds: `LeasedAgent`, and `PlainServer` for what speaks TVM RPC and no more. Paths are local.
    Raises StageError for what is wrong with what was to be done, DeviceLost when the device is gone.
    """

    # `id`, `machine`, `cpu`, `versions`, ...: see `layoutlab.agent.describe`; what is not in it is unknown.
    description: dict[str, Any]

    def require_cores(self, cores: str | list[int], threads: int) -> None:
        """Raise DeviceError when the device has no such cores for so many threads; see `measure.cores.choose_cores`."""

    def close(self) -> None:
        """Give the device back."""

    def echo(self, path: Path) -> tuple[bytes, float]:
        """What comes back of a file that is copied there, and the seconds for both ways."""

    def compute_outputs(
        self, runner: Mapping[str, Any], inputs: Path, outputs: Path, timeout_s: float
    ) -> dict[str, Any]:
        """See `device.on_device.compute_outputs`."""

    def take_samples(
        self, runner: Mapping[str, Any], inputs: Path, arguments: Mapping[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        """See `device.on_device.take_samples`, whose further keyword arguments are `arguments`."""

    def time_functions(
        self, runner: Mapping[str, Any], inputs: Path, arguments: Mapping[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        """See `device.function_times`, whose further keyword arguments are `arguments`."""

    def time_kernels(self, calls: Sequence[Call], options: Mapping[str, Any], timeout_s: float) -> list[list[float]]:
        """See `device.kernel_times.time_kernels`, whose further keyword arguments are `options`."""

    def measure_candidate(
        self, library: Path, arguments: list[tuple[str, tuple[int, ...]]], timing: Timing, options: Mapping[str, Any]
    ) -> float:
        """Median seconds of one call of `main` of a library.

        `arguments` are (dtype, shape) of its tensors; `options` has `threads` and `cores`.
        """


def open_remote(address: RpcAddress, prefer: str | None = None, wait_s: float = FREE_S) -> Remote:
    """Lease a device: the one whose id is `prefer` if it is free, else any.

    Raises DeviceBusy when none is free, DeviceError when there is none, or when it is another kind of device than
    `address.cpu` says.
    """
    held: list[Remote] = []
    try:
        while True:
            remote = _open_any(address, wait_s, [str(other.description["id"]) for other in held])
            if prefer in (None, remote.description["id"]) or not _has_more(address, held):
                return _require_kind(remote, address)
            # A tracker hands out devices as it likes; those that are not meant are held until the right one has come.
            held.append(remote)
    finally:
        for other in held:
            other.close()


def _has_more(address: RpcAddress, held: list[Remote]) -> bool:
    if address.tracker is None:
        return len(held) + 1 < len(address.agents)
    return tracker.state_of(address.tracker, address.key).free > 0


def _require_kind(remote: Remote, address: RpcAddress) -> Remote:
    found = remote.description.get("cpu")
    if address.cpu is None or found is None or found == address.cpu:
        return remote
    remote.close()
    raise DeviceError(
        f"the device {remote.description['id']} of {address} is a {found}, and this run is on a {address.cpu}: "
        "give devices of different kinds different keys"
    )


def _open_any(address: RpcAddress, wait_s: float, skip: list[str]) -> Remote:
    if address.tracker is not None:
        return wrap(*tracker.request(address.tracker, address.key, wait_s=wait_s), address)
    problems: list[DeviceError] = []
    for agent in address.agents:
        try:
            remote = wrap(tracker.connect(agent, address.key, wait_s=wait_s), agent, address)
        except DeviceError as error:
            problems.append(error)
            continue
        if remote.description["id"] not in skip:
            return remote
        remote.close()
    kind = DeviceBusy if any(isinstance(problem, DeviceBusy) for problem in problems) else DeviceError
    raise kind("; ".join(map(str, problems)) or f"no further device at {address}")


def wrap(session: rpc.RPCSession, where: str, address: RpcAddress) -> Remote:
    """What an open session with the server at `where` is a session with. Raises DeviceError when it is gone."""
    try:
        do = session.get_function(DO)
    except Exception as error:
        # A server without the function names it: "Module has no function ..."; a lost connection does not.
        if DO not in first_message(error):
            raise DeviceError(f"the device at {where} went away at once: {first_message(error)}") from error
        del session
        return PlainServer(where, address)
    return LeasedAgent(session, do, where, address)
