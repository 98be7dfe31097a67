"""The process in which one verb of an agent's session is done, apart from the one that speaks with the network.

A session forks its first before it has read anything. How a network delivers its bytes differs from one time to the
next, and so would the memory of a process that reads them, and with it the places of buffers and what is counted.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import multiprocessing
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from layoutlab.errors import LayoutlabError, first_message

# How it ended follows in brackets: "(SIGSEGV)", "(exit code 1)".
CRASHED = "crashed its process on the device"

Verbs = Mapping[str, Callable[..., Any]]

_PR_SET_PDEATHSIG = 1
# Between the end of a process' pipe and its own end lies nothing but the kernel's work, a core dump at most.
_LAST_S = 5.0
_POLL_S = 0.01


class VerbProcess:
    """A forked process that waits for one verb, does it, and ends. It leads a group of what it starts itself."""

    def __init__(self, verbs: Verbs, not_its_own: Sequence[socket.socket | Connection]) -> None:
        """Fork. `not_its_own` are the connections of this process that would stay open with that one."""
        self._mine, its = multiprocessing.Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                lead_group()
                self._mine.close()
                for connection in not_its_own:
                    connection.close()
                _work(verbs, its)
                status = 0
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(status)
        its.close()

    def fileno(self) -> int:
        """Readable once there is an answer, or never will be one."""
        return self._mine.fileno()

    def start(self, folder: str, verb: str, arguments: str) -> None:
        """Let it do the verb in a folder. `arguments` is JSON text."""
        # A process that died before is noticed when its answer is read.
        with contextlib.suppress(OSError):
            self._mine.send_bytes(json.dumps([folder, verb, arguments]).encode())

    def is_done(self) -> bool:
        """Whether there is an answer or never will be one; also where a child of a dead process holds its pipe."""
        return self._mine.poll() or os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def take_answer(self) -> str:
        """JSON text of the answer: `{"value": ...}` or `{"error": "..."}`. For when it is done; ends the process."""
        try:
            if self._mine.poll():
                found = self._mine.recv_bytes().decode()
                self.end()
                return found
        except (EOFError, OSError):
            pass
        return json.dumps({"error": f"{CRASHED} ({end_group(self._pid, _LAST_S)})"})

    def end(self) -> None:
        """End the process with all of its group, whatever they are doing."""
        end_group(self._pid)


def answer(verbs: Verbs, verb: str, arguments: str) -> str:
    """Do one verb; see `VerbProcess.take_answer`."""
    try:
        if verb not in verbs:
            raise LayoutlabError(f'the agent on the device has no verb "{verb}": it has {", ".join(sorted(verbs))}')
        return json.dumps({"value": verbs[verb](**json.loads(arguments))})
    except LayoutlabError as error:
        return json.dumps({"error": str(error)})
    except Exception as error:
        traceback.print_exc()
        return json.dumps({"error": f"{type(error).__name__}: {first_message(error)}"})


def die_with_parent(how: int = signal.SIGKILL) -> None:
    """Let this process get the signal when the one that forked it ends, where the system can do that (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, how)


def lead_group() -> None:
    """Make this forked process the leader of a group of its own that ends with its parent.

    A process that hangs in native code is ended by SIGTERM: no handler of Python's would ever run there.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent()
    os.setpgid(0, 0)


def end_group(pid: int, within_s: float = 0.0) -> str:
    """Kill a child and all of its group. Returns how the child ended, given `within_s` to end by itself.

    That is the name of a signal, or "exit code 1".
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(_POLL_S)
    # The child is not waited for before this, so its number is still that of its group.
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return f"exit code {os.WEXITSTATUS(status)}"


def _work(verbs: Verbs, connection: Connection) -> None:
    try:
        folder, verb, arguments = json.loads(connection.recv_bytes())
    except EOFError:
        return
    os.chdir(folder)
    connection.send_bytes(answer(verbs, verb, arguments).encode())
