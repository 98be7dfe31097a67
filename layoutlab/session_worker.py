"""The process of an agent's session in which the verbs are done, apart from the one that speaks with the network.

It is forked before the session has read anything. How a network delivers its bytes differs from one time to the next,
and so would the memory of a process that reads them, and with it the places of buffers and what is counted of them.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from layoutlab.errors import first_message

CRASHED = "crashed its process on the device"

Verbs = Mapping[str, Callable[..., Any]]

_PR_SET_PDEATHSIG = 1


class SessionWorker:
    """A forked process that does verbs, one after the other."""

    def __init__(self, verbs: Verbs) -> None:
        self._mine, its = multiprocessing.Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                die_with_parent()
                self._mine.close()
                _work(verbs, its)
            finally:
                os._exit(0)
        its.close()

    def do(self, verb: str, arguments: str) -> str:
        """JSON text of the answer: `{"value": ...}` or `{"error": "..."}`. Relative paths are those of this process."""
        try:
            self._mine.send_bytes(json.dumps([os.getcwd(), verb, arguments]).encode())
            return self._mine.recv_bytes().decode()
        except (EOFError, OSError):
            return json.dumps({"error": CRASHED})

    def end(self) -> None:
        """End the process, whatever it is doing."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def answer(verbs: Verbs, verb: str, arguments: str) -> str:
    """Do one verb; see `SessionWorker.do`."""
    try:
        return json.dumps({"value": verbs[verb](**json.loads(arguments))})
    except Exception as error:
        traceback.print_exc()
        return json.dumps({"error": f"{type(error).__name__}: {first_message(error)}"})


def die_with_parent() -> None:
    """Let this process be killed when the one that forked it ends, where the system can do that (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _work(verbs: Verbs, connection: Connection) -> None:
    while True:
        try:
            folder, verb, arguments = json.loads(connection.recv_bytes())
        except EOFError:
            return
        os.chdir(folder)
        connection.send_bytes(answer(verbs, verb, arguments).encode())
