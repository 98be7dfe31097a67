"""The greeting of TVM RPC, from the side that is greeted."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass, field

# Whoever connects has so long in all to say what a TVM client says.
_HANDSHAKE_S = 10.0
_LONGEST_KEY = 1024
# Of more strangers at once the one that has waited longest is sent away.
_MOST_GUESTS = 64


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client that was let in, and the seconds after which it wants its session to be ended, None for never."""

    connection: socket.socket
    address: tuple[str, int]
    timeout_s: float | None


def greet(listener: socket.socket, expected: str, key: str) -> Client:
    """Let in the first client that names the key `expected`; it is told `key`.

    All that have connected are listened to side by side, so a client does not wait for strangers who are slow or
    silent. RuntimeError when nobody is left who could be a client: the last of them is what the message is about.
    """
    guests: list[_Guest] = []
    listener.setblocking(False)
    try:
        reason = "nobody has come"
        while True:
            _take_in(listener, guests)
            if not guests:
                raise RuntimeError(reason)
            for guest in _with_news(listener, guests):
                try:
                    line = guest.listen()
                    client = None if line is None else _let_in(guest, line, expected, key)
                except (OSError, RuntimeError) as error:
                    reason = str(error)
                    _send_away(guests, guest, reason)
                    continue
                if client is not None:
                    guests.remove(guest)
                    return client
    finally:
        for guest in guests:
            guest.connection.close()


@dataclass(eq=False)
class _Guest:
    """Somebody who has connected, and what was heard of the greeting so far: a number, a length, and so many bytes."""

    connection: socket.socket
    address: tuple[str, int]
    heard: bytearray = field(default_factory=bytearray)
    deadline: float = field(default_factory=lambda: time.monotonic() + _HANDSHAKE_S)

    def listen(self) -> str | None:
        """What the greeting says once it is whole; RuntimeError when it never will be."""
        if time.monotonic() > self.deadline:
            raise RuntimeError(f"no greeting within {_HANDSHAKE_S:.0f} s")
        with contextlib.suppress(BlockingIOError):
            # What comes after the greeting belongs to the session.
            while missing := self._missing():
                said = self.connection.recv(missing)
                if not said:
                    raise RuntimeError("gone before it said who it is")
                self.heard += said
            return self.heard[8:].decode("utf-8", "replace")
        return None

    def _missing(self) -> int:
        """Bytes that the greeting has left, as far as it is known by now."""
        from tvm.rpc import base

        if len(self.heard) >= 4 and self._number(0) != base.RPC_MAGIC:
            raise RuntimeError("not a TVM RPC client")
        if len(self.heard) < 8:
            return 8 - len(self.heard) if len(self.heard) >= 4 else 4 - len(self.heard)
        length = self._number(4)
        if not 0 < length <= _LONGEST_KEY:
            raise RuntimeError(f"a key of {length} bytes")
        return 8 + length - len(self.heard)

    def _number(self, place: int) -> int:
        return int(struct.unpack_from("<i", self.heard, place)[0])


def _take_in(listener: socket.socket, guests: list[_Guest]) -> None:
    """Take everybody who waits at the door."""
    # Whoever is gone again before that is no matter.
    with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
        while True:
            connection, address = listener.accept()
            connection.setblocking(False)
            guests.append(_Guest(connection, address[:2]))
            if len(guests) > _MOST_GUESTS:
                _send_away(guests, guests[0], "too many at once")


def _with_news(listener: socket.socket, guests: list[_Guest]) -> list[_Guest]:
    """Wait until somebody comes, says something, or has had its time; those of the guests who did."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    for guest in guests:
        poll.register(guest.connection, select.POLLIN)
    until = min(guest.deadline for guest in guests)
    files = {file for file, _ in poll.poll(max(0.0, until - time.monotonic()) * 1e3 + 1)}
    now = time.monotonic()
    return [guest for guest in guests if guest.connection.fileno() in files or guest.deadline < now]


def _send_away(guests: list[_Guest], guest: _Guest, why: str) -> None:
    print(f"sent {guest.address[0]}:{guest.address[1]} away: {why}", file=sys.stderr, flush=True)
    guests.remove(guest)
    guest.connection.close()


def _let_in(guest: _Guest, line: str, expected: str, key: str) -> Client:
    """Answer a greeting that is whole; RuntimeError when it is not that of the client."""
    from tvm.rpc import base

    connection = guest.connection
    connection.settimeout(_HANDSHAKE_S)
    name, *options = line.split() or [""]
    if name != f"client:{expected}":
        connection.sendall(struct.pack("<i", base.RPC_CODE_MISMATCH))
        raise RuntimeError("a client with another key")
    timeout_s = _timeout_s(options)
    answer = f"server:{key}".encode()
    connection.sendall(struct.pack("<ii", base.RPC_CODE_SUCCESS, len(answer)) + answer)
    connection.settimeout(None)
    return Client(connection=connection, address=guest.address, timeout_s=timeout_s)


def _timeout_s(options: list[str]) -> float | None:
    for option in options:
        name, _, value = option.partition("=")
        if name == "-timeout":
            try:
                return float(value)
            except ValueError as error:
                raise RuntimeError(f"a client with the timeout {value!r}") from error
    return None
