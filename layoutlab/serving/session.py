"""One session of an agent: a client's connection, the process that speaks with it, and those that do its verbs.

Everything here happens in a process forked for the session. It watches the others, none of which can keep the device:
they end when the client is gone, when its time is up, and with the agent.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import select
import signal
import socket
import sys
import time
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from layoutlab.serving.handshake import greet
from layoutlab.session_worker import VerbProcess, Verbs, end_group, lead_group

# How often a verb's process is looked at that may have died without closing its pipe.
_LOOK_S = 0.5
# No system call waits longer than some weeks, and no session is looked at too often by this.
_LONGEST_WAIT_S = 3600.0

# In the process that speaks with the client: its way to the session's own.
_session: Connection | None = None


def ask(verb: str, arguments: str, timeout_s: Any = None) -> str:
    """Have a verb done; JSON text of its answer, see `VerbProcess.take_answer`. For the process that speaks."""
    assert _session is not None
    try:
        limit_s = _seconds(timeout_s)
    except ValueError:
        return json.dumps({"error": f"the time limit of a verb is {str(timeout_s)!r}: expected seconds above 0"})
    _session.send_bytes(json.dumps([verb, arguments, limit_s]).encode())
    return _session.recv_bytes().decode()


def _seconds(timeout_s: Any) -> float | None:
    """The number as it comes over RPC, which may be text; None when nothing is said."""
    if timeout_s is None or str(timeout_s) == "":
        return None
    seconds = float(str(timeout_s))
    if not seconds > 0:
        raise ValueError
    return seconds


def serve_session(listener: socket.socket, verbs: Verbs, expected: str, key: str) -> None:
    """Serve the first client among those who wait at the listener, until it is gone.

    The client has to name the key `expected`, and is told `key`. OSError or RuntimeError when there is none.
    """
    first = VerbProcess(verbs, [listener])
    try:
        client = greet(listener, expected, key)
        listener.close()
    except BaseException:
        first.end()
        raise
    print(f"serving {client.address[0]}:{client.address[1]}", file=sys.stderr, flush=True)
    session = _Session(client.connection, client.timeout_s, verbs, first)
    try:
        session.run()
    finally:
        session.end()


class _Session:
    """The processes of a session, and what is under way."""

    def __init__(self, connection: socket.socket, timeout_s: float | None, verbs: Verbs, first: VerbProcess) -> None:
        from tvm.support import utils

        self._connection, self._verbs, self._timeout_s = connection, verbs, timeout_s
        self._deadline = time.monotonic() + timeout_s if timeout_s else float("inf")
        self._folder = utils.tempdir()
        # Waits for a verb, or does one: then until `_verb_deadline`.
        self._verb: VerbProcess | None = first
        self._is_busy, self._verb_timeout_s, self._verb_deadline = False, 0.0, float("inf")
        self._requests, its = multiprocessing.Pipe()
        self._speaker = os.fork()
        if self._speaker == 0:
            self._speak(its)
        its.close()

    def run(self) -> None:
        """Do what the client asks for until it is gone, or its time is up."""
        while time.monotonic() < self._deadline:
            ready = self._wait()
            if self._connection.fileno() in ready:
                return
            if self._requests.fileno() in ready and not self._take_request():
                return
            self._look_at_verb()
        self._say_time_is_up()

    def end(self) -> None:
        """End every process, and remove the session's folder."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self._verb is not None:
            self._verb.end()
        self._end_speaker()
        self._connection.close()
        self._folder.remove()

    def _wait(self) -> list[int]:
        """What there is to see to: the files with requests or answers, and the connection once its client is gone."""
        poll = select.poll()
        # No client closes one direction alone. What it says is for the process that speaks with it.
        poll.register(self._connection, select.POLLRDHUP)
        poll.register(self._requests, select.POLLIN)
        until = min(self._deadline, time.monotonic() + _LONGEST_WAIT_S)
        if self._is_busy and self._verb is not None:
            poll.register(self._verb, select.POLLIN)
            until = min(until, self._verb_deadline, time.monotonic() + _LOOK_S)
        return [file for file, _ in poll.poll(max(0.0, until - time.monotonic()) * 1e3)]

    def _take_request(self) -> bool:
        """Start the verb that is asked for; False when the process that asks has ended."""
        try:
            verb, arguments, self._verb_timeout_s = json.loads(self._requests.recv_bytes())
        except (EOFError, OSError):
            return False
        if self._verb is None:
            self._verb = VerbProcess(self._verbs, [self._connection, self._requests])
        self._verb.start(self._folder.temp_dir, verb, arguments)
        self._is_busy = True
        self._verb_deadline = time.monotonic() + self._verb_timeout_s if self._verb_timeout_s else float("inf")
        return True

    def _look_at_verb(self) -> None:
        """Pass on the answer when there is one, or when the verb had its time."""
        if not self._is_busy or self._verb is None:
            return
        if self._verb.is_done():
            answer = self._verb.take_answer()
        elif time.monotonic() >= self._verb_deadline:
            self._verb.end()
            answer = json.dumps({"error": f"took longer than {self._verb_timeout_s:g} s"})
        else:
            return
        self._verb, self._is_busy = None, False
        try:
            self._requests.send_bytes(answer.encode())
        except OSError:
            # The next look at the requests finds them closed.
            return

    def _speak(self, session: Connection) -> NoReturn:
        """Be TVM's server for this connection, in a process that does nothing else."""
        global _session
        status = 1
        try:
            lead_group()
            self._requests.close()
            _session = session
            from tvm.rpc import _ffi_api
            from tvm.rpc.server import _server_env

            os.chdir(self._folder.temp_dir)
            _server_env("", self._folder)
            _ffi_api.ServerLoop(self._connection.fileno())
            status = 0
        except Exception as error:
            print(f"session: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)

    def _say_time_is_up(self) -> None:
        """Tell the client as TVM's server does, once nobody else can write to the connection."""
        from tvm.rpc import _ffi_api

        self._end_speaker()
        _, writable, _ = select.select([], [self._connection], [], 0)
        if writable:
            _ffi_api.ReturnException(
                self._connection.fileno(),
                f"RPCSessionTimeoutError: Your {self._timeout_s}s session has expired, "
                'try to increase the "session_timeout" value.',
            )

    def _end_speaker(self) -> None:
        if self._speaker:
            how = end_group(self._speaker)
            self._speaker = 0
            if how not in ("exit code 0", "SIGKILL"):
                print(f"a session's process ended with {how}", file=sys.stderr, flush=True)
