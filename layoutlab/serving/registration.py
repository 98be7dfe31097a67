"""An agent's place at a TVM RPC tracker: it is offered to one client at a time, and again after each.

This is the server's side of TVM's own protocol, without its two ends: TVM's server gives up when a tracker is away for
a minute, and serves its sessions itself.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import sys
import time
from typing import Any

# As often the tracker is asked whether a client has taken the key that lets it in.
_PING_S = 1.0
# A client that has taken the key and does not come, for as long: the device is offered again, with a new key.
_CLIENT_S = 3.0
_ANSWER_S = 10.0
_RETRY_S = 1.0


class Registration:
    """Offers the agent that listens on `port` at a tracker, under `key`, for as long as it takes."""

    def __init__(self, tracker: tuple[str, int], key: str, port: int, custom_address: str | None) -> None:
        """`custom_address` is what clients are told to connect to; None: where the tracker sees this agent."""
        self._tracker, self._key, self._port, self._custom_address = tracker, key, port, custom_address
        self._connection: socket.socket | None = None
        self._match_key: str | None = None
        self._taken_at: float | None = None
        self._is_away = False

    def wait_for_client(self, listener: socket.socket) -> str:
        """Wait until someone connects to the listener; returns the key that a client of the tracker's would name.

        A tracker that is away or does not answer is asked again for ever.
        """
        while True:
            try:
                key = self._offer()
                if self._has_come(listener):
                    return key
            except (OSError, ValueError, struct.error) as error:
                self._lose(error)

    def withdraw(self) -> None:
        """Let the next client have another key: this one was used."""
        self._match_key = None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._match_key = None

    def _offer(self) -> str:
        """The key that the tracker offers; registers when it has none of this agent."""
        from tvm.rpc import base

        if self._connection is None:
            self._connect()
        if self._match_key is None:
            key = base.random_key(self._key)
            self._ask([base.TrackerCode.PUT, self._key, (self._port, key), self._custom_address])
            self._match_key, self._taken_at = key, None
        return self._match_key

    def _connect(self) -> None:
        from tvm.rpc import base

        # Held before it is known to work: whatever fails, it gets closed.
        self._connection = socket.create_connection(self._tracker, timeout=_ANSWER_S)
        self._connection.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
        if struct.unpack("<i", base.recvall(self._connection, 4))[0] != base.RPC_TRACKER_MAGIC:
            raise ValueError("it is no TVM RPC tracker")
        about = {"key": f"server:{self._key}", "addr": (self._custom_address, self._port)}
        self._ask([base.TrackerCode.UPDATE_INFO, about])
        self._is_away = False
        print(f"registered with the tracker at {self._name} as {self._key}", file=sys.stderr, flush=True)

    def _has_come(self, listener: socket.socket) -> bool:
        """Whether someone has connected after some time; a key that was taken in vain is withdrawn meanwhile."""
        from tvm.rpc import base

        assert self._connection is not None
        ready, _, _ = select.select([listener, self._connection], [], [], _PING_S)
        if listener in ready:
            return True
        # A tracker says nothing by itself; when it ends, this fails at once.
        if self._match_key in self._ask([base.TrackerCode.GET_PENDING_MATCHKEYS]):
            self._taken_at = None
        elif self._taken_at is None:
            self._taken_at = time.monotonic()
        elif time.monotonic() - self._taken_at > _CLIENT_S:
            self.withdraw()
        return False

    def _ask(self, message: list[Any]) -> Any:
        from tvm.rpc import base

        assert self._connection is not None
        base.sendjson(self._connection, message)
        answer = base.recvjson(self._connection)
        if answer == base.TrackerCode.FAIL:
            raise ValueError(f"it refuses {message}")
        return answer

    def _lose(self, error: Exception) -> None:
        with contextlib.suppress(OSError):
            self.close()
        if not self._is_away:
            print(
                f"the tracker at {self._name} does not answer ({error}); it is asked again until it does",
                file=sys.stderr,
                flush=True,
            )
        self._is_away = True
        time.sleep(_RETRY_S)

    @property
    def _name(self) -> str:
        return f"{self._tracker[0]}:{self._tracker[1]}"
