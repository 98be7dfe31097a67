"""A session with an agent (`layoutlab.agent`), from the side that asks. Imports TVM: for worker processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tvm import rpc

from layoutlab.agent import DO
from layoutlab.errors import DeviceError, DeviceLost, StageError, first_message
from layoutlab.session_worker import CRASHED


class AgentSession:
    """One connection: a process of its own on the device, with a folder of its own that ends with it."""

    def __init__(self, host: str, port: int, key: str = "", timeout_s: float = 60.0) -> None:
        """Connect. The agent ends the session's process after `timeout_s`. Raises DeviceError when nobody answers."""
        address = f"{host}:{port}"
        try:
            # Whole seconds: the server reads the figure as text, and takes 0 for no limit.
            session = rpc.connect(host, port, key, session_timeout=max(1, round(timeout_s)))
            do = session.get_function(DO)
        except Exception as error:
            raise DeviceError(
                f"no layoutlab agent answers at {address}: {first_message(error)}. Start one there: layoutlab agent"
            ) from error
        self._take(session, do, address, timeout_s)

    @classmethod
    def of(cls, session: rpc.RPCSession, do: Callable[..., Any], address: str) -> AgentSession:
        """A session that is open already, with the agent's function, and has no end of its own."""
        made = cls.__new__(cls)
        made._take(session, do, address, None)
        return made

    def _take(self, session: rpc.RPCSession, do: Callable[..., Any], address: str, timeout_s: float | None) -> None:
        self._session: Any = session
        self._do: Any = do
        self._address, self._timeout_s = address, timeout_s

    def close(self) -> None:
        """End the session. The agent serves one at a time, so the next has to wait for this.

        TVM ends a session with the last reference to it, which the traceback of an error might hold for long.
        """
        self._do = self._session = None

    def upload(self, path: Path, name: str) -> None:
        """Copy a file into the session's folder."""
        self._session.upload(str(path), name)

    def download(self, name: str) -> bytes:
        """The content of a file in the session's folder."""
        return bytes(self._session.download(name))

    def do(self, verb: str, **arguments: Any) -> Any:
        """Do one of the agent's verbs; paths in `arguments` are names in the session's folder.

        Raises StageError("run") when it fails, takes too long, or crashes its process.
        """
        try:
            answer = json.loads(str(self._do(verb, json.dumps(arguments))))
        except Exception as error:
            raise StageError("run", self._cause(error)) from error
        return _value(answer)

    def do_within(self, timeout_s: float, verb: str, **arguments: Any) -> Any:
        """As `do`; the agent ends the verb after `timeout_s`, and the session goes on.

        Raises DeviceLost when the connection breaks: what a verb does cannot break it.
        """
        try:
            answer = json.loads(str(self._do(verb, json.dumps(arguments), timeout_s)))
        except Exception as error:
            raise DeviceLost(f"the device at {self._address} went away: {first_message(error)}") from error
        return _value(answer)

    def _cause(self, error: Exception) -> str:
        """Why the connection ended before there was an answer."""
        if "SessionTimeoutError" in str(error):
            return f"took longer than {self._timeout_s:.0f} s"
        if "kShutdown" in str(error) or "reset" in str(error):
            return CRASHED
        return f"{type(error).__name__}: {first_message(error)}"


def _value(answer: dict[str, Any]) -> Any:
    if "error" in answer:
        raise StageError("run", answer["error"])
    return answer["value"]
