"""A plain TVM RPC server, such as TVM's app for Android phones or `tvm_rpc`. Imports TVM: for worker processes.

It runs what TVM compiled and no more: no TFLite, no conditions. What crashes there ends its session, and a session
that takes too long is ended by the server; so each thing gets a session of its own.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm.runtime.vm import VirtualMachine

from layoutlab.device.candidate_timing import Timing, random_values, samples_s
from layoutlab.device.kernel_times import kernel_samples_s
from layoutlab.device.rpc import tracker
from layoutlab.device.rpc.address import RpcAddress
from layoutlab.errors import DeviceError, DeviceLost, StageError, first_message
from layoutlab.measure.inputs import load_sets, save_sets
from layoutlab.roofline.kernels import Call

# Mode 1 of TVM's thread pool: the big cores.
_BIG_CORES = 1


class PlainServer:
    """See `device.rpc.remote.Remote`."""

    def __init__(self, where: str, address: RpcAddress) -> None:
        self._where, self._address = where, address
        self.description: dict[str, Any] = {"id": where, "versions": {}}

    def require_cores(self, cores: str | list[int], threads: int) -> None:
        """See `Remote`; which cores there are is unknown here."""

    def close(self) -> None:
        """See `Remote`; there is no session between two calls."""

    def echo(self, path: Path) -> tuple[bytes, float]:
        """See `Remote`."""
        with self._session(self._address.timeout_s) as session:
            started = time.monotonic()
            session.upload(str(path), "echo")
            back = bytes(session.download("echo"))
            return back, time.monotonic() - started

    def compute_outputs(
        self, runner: Mapping[str, Any], inputs: Path, outputs: Path, timeout_s: float
    ) -> dict[str, Any]:
        """See `Remote`."""
        self._require_artifact(runner)
        with self._session(timeout_s) as session:
            machine = _Machine(session, runner)
            save_sets(outputs, [machine.run(values) for values in load_sets(inputs)])
        return {"runtime": _runtime(runner)}

    def take_samples(
        self, runner: Mapping[str, Any], inputs: Path, arguments: Mapping[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        """See `Remote`. The server's own evaluator takes the samples; conditions, cores and heat there are unknown."""
        self._require_artifact(runner)
        with self._session(timeout_s) as session:
            machine = _Machine(session, runner)
            machine.run(load_sets(inputs)[0])
            spent_ms = 0.0
            while spent_ms < arguments["warmup_ms"]:
                spent_ms += sum(machine.samples_ms(1, 0))
            samples_ms = machine.samples_ms(arguments["repeats"], round(arguments["min_repeat_ms"]))
        return {"samples_ms": samples_ms, "conditions": [], "runtime": _runtime(runner)}

    def time_functions(
        self, runner: Mapping[str, Any], inputs: Path, arguments: Mapping[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        """Not here: what looks into an inference has to run beside it."""
        raise StageError(
            "profile",
            f"the device at {self._where} is a plain TVM RPC server, which cannot look into an inference: run "
            "layoutlab agent there",
        )

    def time_kernels(self, calls: Sequence[Call], options: Mapping[str, Any], timeout_s: float) -> list[list[float]]:
        """See `Remote`. The threads run on the big cores, whatever `options` says."""
        return [self._time_kernel(call, options, timeout_s) for call in calls]

    def _time_kernel(self, call: Call, options: Mapping[str, Any], timeout_s: float) -> list[float]:
        library, arguments = call
        timing = Timing(repeats=options["repeats"], min_repeat_ms=options["min_repeat_ms"], cold_cache=False)
        with self._session(timeout_s) as session:
            module = _load(session, Path(library))
            _set_threads(session, options["threads"])
            return kernel_samples_s(module, arguments, timing, session.cpu())

    def measure_candidate(
        self, library: Path, arguments: list[tuple[str, tuple[int, ...]]], timing: Timing, options: Mapping[str, Any]
    ) -> float:
        """See `Remote`."""
        with self._session(self._address.timeout_s) as session:
            module = _load(session, library)
            _set_threads(session, options["threads"])
            device = session.cpu()
            tensors = [tvm.runtime.tensor(random_values(dtype, shape), device) for dtype, shape in arguments]
            return statistics.median(samples_s(module, tensors, timing, device))

    @contextlib.contextmanager
    def _session(self, timeout_s: float) -> Iterator[Any]:
        """A session with this device; an error within it is the fault of what was done."""
        session = self._connect(round(timeout_s))
        try:
            yield session
        except StageError:
            raise
        except Exception as error:
            raise StageError("run", _cause(error, timeout_s)) from None
        finally:
            # A session ends with the last reference to it, and TVM's objects refer to each other in circles.
            del session
            gc.collect()

    def _connect(self, session_s: int) -> Any:
        held = []
        try:
            if self._address.tracker is None:
                return tracker.connect(self._where, self._address.key, session_s)
            for _ in tracker.state_of(self._address.tracker, self._address.key).devices:
                session, where = tracker.request(self._address.tracker, self._address.key, session_s)
                if where == self._where:
                    return session
                held.append(session)
        except DeviceError as error:
            raise DeviceLost(f"the device at {self._where} went away: {error}") from error
        finally:
            held.clear()
        raise DeviceLost(f"the device at {self._where} went away: the tracker does not give it any more")

    def _require_artifact(self, runner: Mapping[str, Any]) -> None:
        if runner["kind"] == "relay_artifact":
            raise StageError(
                "run",
                f"the device at {self._where} is a plain TVM RPC server, which does not run what a Relay-era TVM "
                "built: run layoutlab agent there",
            )
        if runner["kind"] != "artifact":
            raise StageError(
                "run",
                f"the device at {self._where} is a plain TVM RPC server, which has no TFLite: take the baseline from "
                "benchmark_model (see docs/phones.md), or run layoutlab agent there",
            )


class _Machine:
    """A built variant in a virtual machine on the device."""

    def __init__(self, session: Any, runner: Mapping[str, Any]) -> None:
        _set_threads(session, runner["threads"])
        self._device = session.cpu()
        self._machine = VirtualMachine(_load(session, Path(runner["path"])), self._device)

    def run(self, values: Any) -> list[Any]:
        """The outputs for one set of inputs."""
        self._machine.set_input("main", *(tvm.runtime.tensor(value, self._device) for value in values))
        self._machine.invoke_stateful("main")
        result = self._machine.get_outputs("main")
        return [tensor.numpy() for tensor in ([result] if hasattr(result, "numpy") else list(result))]

    def samples_ms(self, repeats: int, min_repeat_ms: int) -> list[float]:
        """Times of inferences of the last inputs."""
        evaluate = self._machine.time_evaluator(
            "invoke_stateful", self._device, number=1, repeat=repeats, min_repeat_ms=min_repeat_ms
        )
        return [1e3 * seconds for seconds in evaluate("main").results]


def _load(session: Any, library: Path) -> Any:
    session.upload(str(library), "library.so")
    return session.load_module("library.so")


def _set_threads(session: Any, threads: int) -> None:
    session.get_function("runtime.config_threadpool")(_BIG_CORES, threads)


def _runtime(runner: Mapping[str, Any]) -> str:
    threads = runner["threads"]
    return f"TVM, {threads} thread{'s' if threads > 1 else ''}, plain RPC server"


def _cause(error: Exception, timeout_s: float) -> str:
    if "SessionTimeoutError" in str(error):
        return f"took longer than {timeout_s:.0f} s"
    if "kShutdown" in str(error) or "reset" in str(error):
        return "crashed its process on the device, or the device went away"
    return f"{type(error).__name__}: {first_message(error)}"
