"""What a tracker knows, and sessions with devices, from the side that asks. Imports TVM: for worker processes.

TVM's own client waits for ever for a device that is busy or gone; here every wait has an end.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tvm import rpc
from tvm.rpc import base

from layoutlab.device.rpc.address import FREE_S, split_address
from layoutlab.errors import DeviceBusy, DeviceError, first_message
from layoutlab.spec.words import did_you_mean, quoted

_CONNECT_S = 5.0
# A tracker hands out a device that died a moment ago like any other.
_DEAD_ONES = 3
_PAUSE_S = 1.0
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class KeyState:
    """What a tracker knows of a key: the addresses of its devices, how many are free, and how many clients wait."""

    key: str
    devices: tuple[str, ...]
    free: int
    pending: int

    def __str__(self) -> str:
        return f"{self.key} ({len(self.devices)} device{'' if len(self.devices) == 1 else 's'}, {self.free} free)"


def summary(tracker: str) -> list[KeyState]:
    """The keys that a tracker knows, by name. Raises DeviceError when none answers at `tracker` ("host:port")."""
    with _connected(tracker) as connection:
        try:
            return _states(_ask(connection, tracker, [base.TrackerCode.SUMMARY]))
        except TimeoutError:
            raise DeviceError(f"the tracker at {tracker} gives no answer for {_CONNECT_S:.0f} s") from None


def state_of(tracker: str, key: str) -> KeyState:
    """The state of a key that has devices. Raises DeviceError, naming the keys found, when it has none."""
    states = summary(tracker)
    for state in states:
        if state.key == key and state.devices:
            return state
    known = [state for state in states if state.devices]
    listed = ", ".join(map(str, known)) if known else "nothing"
    raise DeviceError(
        f"the tracker at {tracker} knows no device with the key {quoted(key)}"
        f"{did_you_mean(key, [state.key for state in known]) or '.'} Known there: {listed}. Give another key, or run "
        f"on the device: layoutlab agent --tracker {tracker} --key {key}"
    )


def patiently(work: Callable[[], _T], patience_s: float) -> _T:
    """What `work` returns; while it finds no device it is tried again for `patience_s`.

    For a run that is under way: a tracker that was restarted knows its devices again after some seconds.
    """
    ends_at = time.monotonic() + patience_s
    while True:
        try:
            return work()
        except DeviceError:
            if time.monotonic() + _PAUSE_S > ends_at:
                raise
            time.sleep(_PAUSE_S)


def request(tracker: str, key: str, session_s: int = 0, wait_s: float = FREE_S) -> tuple[rpc.RPCSession, str]:
    """A session with a free device of the key, and the device's address; it ends after `session_s` (0: never).

    Raises DeviceError when there is no tracker or no such key, DeviceBusy when no device becomes free within `wait_s`.
    """
    for _ in range(_DEAD_ONES):
        state = state_of(tracker, key)
        with _connected(tracker) as connection:
            connection.settimeout(wait_s)
            try:
                host, port, match = _ask(connection, tracker, [base.TrackerCode.REQUEST, key, "", 1])
            except TimeoutError:
                raise DeviceBusy(
                    f"{len(state.devices)} device{'s' if len(state.devices) > 1 else ''} with the key {quoted(key)} at "
                    f"the tracker {tracker}, and none became free within {wait_s:.0f} s. Wait for whoever uses it, "
                    "or attach another"
                ) from None
        address = f"{host}:{port}"
        try:
            return connect(address, match, session_s, wait_s), address
        except DeviceError as error:
            last = error
    raise DeviceError(f"the tracker at {tracker} gives devices for {quoted(key)} that do not answer: {last}")


def connect(address: str, key: str = "", session_s: int = 0, wait_s: float = FREE_S) -> rpc.RPCSession:
    """A session with the server at `address`.

    Raises DeviceBusy when it does not take one within `wait_s`, DeviceError when there is none.
    """
    host, port = split_address(address)
    found: list[Any] = []
    given_up = threading.Event()

    def work() -> None:
        try:
            found.append(rpc.connect(host, port, key, session_timeout=session_s))
        except Exception as error:
            found.append(error)
        if given_up.is_set():
            found.clear()  # or the device would be ours, and nobody would know

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(wait_s)
    if not found:
        given_up.set()
        raise DeviceBusy(
            f"what listens at {address} takes no session within {wait_s:.0f} s: it serves one at a time, and is busy"
        )
    if isinstance(found[0], Exception):
        raise DeviceError(
            f"no RPC server answers at {address}: {first_message(found[0])}. Start one on the device: layoutlab agent"
        )
    return found[0]


@contextlib.contextmanager
def _connected(tracker: str) -> Iterator[socket.socket]:
    host, port = split_address(tracker)
    try:
        connection = socket.create_connection((host, port), timeout=_CONNECT_S)
    except OSError as error:
        raise DeviceError(
            f"no RPC tracker answers at {tracker}: {error.strerror or 'no answer'}. Start one: layoutlab tracker, "
            "or give another address"
        ) from error
    with connection:
        try:
            connection.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
            magic = struct.unpack("<i", base.recvall(connection, 4))[0]
        except (OSError, struct.error):
            magic = None
        if magic != base.RPC_TRACKER_MAGIC:
            raise DeviceError(
                f"what listens at {tracker} is no RPC tracker. If it is an agent, say agent://{tracker} instead"
            )
        yield connection


def _ask(connection: socket.socket, tracker: str, question: Sequence[Any]) -> Any:
    try:
        base.sendjson(connection, question)
        code, answer = base.recvjson(connection)
    except TimeoutError:
        raise
    except (OSError, ValueError, TypeError, struct.error) as error:
        raise DeviceError(f"the tracker at {tracker} went away: {first_message(error)}") from error
    if code != base.TrackerCode.SUCCESS:
        raise DeviceError(f"the tracker at {tracker} refuses {question[0]}: code {code}")
    return answer


def _states(data: dict[str, Any]) -> list[KeyState]:
    devices: dict[str, list[str]] = {}
    for server in data["server_info"]:
        devices.setdefault(server["key"].removeprefix("server:"), []).append(":".join(map(str, server["addr"])))
    queues = data["queue_info"]
    return [
        KeyState(
            key=key,
            devices=tuple(sorted(devices.get(key, ()))),
            free=queues.get(key, {}).get("free", 0),
            pending=queues.get(key, {}).get("pending", 0),
        )
        for key in sorted({*devices, *queues})
    ]
