"""TVM's tracker, made proof against who connects and does not behave. Imports TVM.

TVM's own keeps every connection for ever, and when the process may open no more files it tries again without end,
with nobody served any more.
"""

from __future__ import annotations

import resource
import socket
import time
from typing import Any

from tornado import ioloop
from tvm.rpc.tracker import TCPEventHandler, TrackerServerHandler

# Who has not even said the tracker's number after so long is gone.
_GREETING_S = 10.0
# Of more who are no agents the one that has been there longest is sent away: clients stay for seconds.
_MOST_GUESTS = 256
_MOST_FILES = 4096


class Handler(TrackerServerHandler):
    """The tracker's connections. Those of registered agents are kept; all others have to be short, or few."""

    def __init__(self, listener: socket.socket, stop_key: str) -> None:
        _allow_files()
        self._since: dict[TCPEventHandler, float] = {}
        super().__init__(listener, stop_key)
        self._cleaning = ioloop.PeriodicCallback(self._drop_silent, 1e3 * _GREETING_S / 5)
        self._cleaning.start()

    def close(self, conn: TCPEventHandler) -> None:
        """A connection has ended."""
        self._since.pop(conn, None)
        super().close(conn)

    def _on_event(self, _: Any) -> None:
        """Take everybody who waits at the door."""
        while True:
            try:
                connection, address = self._sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:
                # No more files: somebody has to go first.
                if not self._drop_oldest():
                    return
                continue
            self._since[TCPEventHandler(self, connection, address)] = time.monotonic()
            if len(self._guests()) > _MOST_GUESTS:
                self._drop_oldest()

    def _guests(self) -> list[TCPEventHandler]:
        """Those who have not said that they are agents, in the order in which they came."""
        return [guest for guest in self._since if not guest.summary()]

    def _drop_oldest(self) -> bool:
        guests = self._guests()
        if guests:
            guests[0].close()
        return bool(guests)

    def _drop_silent(self) -> None:
        for guest in self._guests():
            # The attribute says how many bytes the greeting has left.
            if guest._init_req_nbytes and time.monotonic() - self._since[guest] > _GREETING_S:
                guest.close()


def _allow_files() -> None:
    """Let this process open as many files as it takes to know everybody, where the system lets it."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if most == resource.RLIM_INFINITY else min(_MOST_FILES, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
