"""A leased agent (`layoutlab.agent`). Imports TVM: for worker processes.

The agent does each thing in a process of its own, so what crashes or hangs costs nothing but itself.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from tvm import rpc

from layoutlab.device.agent_session import AgentSession
from layoutlab.device.candidate_timing import Timing
from layoutlab.device.rpc.address import RpcAddress
from layoutlab.errors import DeviceError, DeviceLost, StageError, first_message
from layoutlab.roofline.kernels import Call

_T = TypeVar("_T")


class LeasedAgent:
    """See `device.rpc.remote.Remote`."""

    def __init__(self, session: rpc.RPCSession, do: Callable[..., Any], where: str, address: RpcAddress) -> None:
        self._session = AgentSession.of(session, do, where)
        self._where, self._timeout_s = where, address.timeout_s
        self._placed_files: set[str] = set()
        self.description: dict[str, Any] = {"id": where, **self._session.do_within(self._timeout_s, "describe")}

    def require_cores(self, cores: str | list[int], threads: int) -> None:
        """See `Remote`."""
        try:
            self._session.do_within(self._timeout_s, "choose_cores", wanted=cores, threads=threads)
        except StageError as error:
            raise DeviceError(f"the device at {self._where}: {error.cause}") from None

    def close(self) -> None:
        """See `Remote`."""
        self._session.close()

    def echo(self, path: Path) -> tuple[bytes, float]:
        """See `Remote`."""
        started = time.monotonic()
        self._transfer(lambda: self._session.upload(path, "echo"))
        back = self._transfer(lambda: self._session.download("echo"))
        return back, time.monotonic() - started

    def compute_outputs(
        self, runner: Mapping[str, Any], inputs: Path, outputs: Path, timeout_s: float
    ) -> dict[str, Any]:
        """See `Remote`."""
        done = self._on_model("compute_outputs", runner, inputs, {"outputs": "outputs.npz"}, timeout_s)
        outputs.write_bytes(self._transfer(lambda: self._session.download("outputs.npz")))
        return done

    def take_samples(
        self, runner: Mapping[str, Any], inputs: Path, arguments: Mapping[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        """See `Remote`."""
        return self._on_model("take_samples", runner, inputs, arguments, timeout_s)

    def time_functions(
        self, runner: Mapping[str, Any], inputs: Path, arguments: Mapping[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        """See `Remote`."""
        return self._on_model("time_functions", runner, inputs, arguments, timeout_s)

    def time_kernels(self, calls: Sequence[Call], options: Mapping[str, Any], timeout_s: float) -> list[list[float]]:
        """See `Remote`."""
        placed = [(self._place(Path(library)), arguments) for library, arguments in calls]
        return list(self._session.do_within(timeout_s, "time_kernels", calls=placed, **options))

    def measure_candidate(
        self, library: Path, arguments: list[tuple[str, tuple[int, ...]]], timing: Timing, options: Mapping[str, Any]
    ) -> float:
        """See `Remote`."""
        self._transfer(lambda: self._session.upload(library, "candidate.so"))
        asked = {"library": "candidate.so", "arguments": arguments, **asdict(timing), **options}
        return float(self._session.do_within(self._timeout_s, "measure_candidate", **asked))

    def _on_model(
        self, verb: str, runner: Mapping[str, Any], inputs: Path, arguments: Mapping[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        """Do a verb with a model and its inputs, which are brought to the device."""
        placed = {"runner": {**runner, "path": self._place(Path(runner["path"]))}, "inputs": self._place(inputs)}
        done: dict[str, Any] = self._session.do_within(timeout_s, verb, **placed, **arguments)
        return done

    def _place(self, path: Path) -> str:
        """The name of the file on the device, where it is copied once in a session."""
        name = hashlib.sha256(path.read_bytes()).hexdigest()[:16] + path.suffix
        if name not in self._placed_files:
            self._transfer(lambda: self._session.upload(path, name))
            self._placed_files.add(name)
        return name

    def _transfer(self, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except Exception as error:
            raise DeviceLost(f"the device at {self._where} went away: {first_message(error)}") from error
