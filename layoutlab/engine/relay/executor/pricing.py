"""Times of candidates for a Relay-era TVM's tuner, which runs in another interpreter: lines of JSON.

    python -m layoutlab.engine.relay.executor.pricing                   # priced on simulated cores
    python -m layoutlab.engine.relay.executor.pricing --rpc FILE.json   # measured on devices: see `candidates`

Each line on standard input asks for one call of one function:

    {"id": 7, "library": "candidate.o", "function": "default_function", "args": [[[1, 8, 8, 16], "float32"], ...]}

`library` is what that TVM compiled: an object, or a .tar of objects as AutoTVM's builder exports them; `args` are the
shape and type of each tensor. Each line on standard output answers one of them, as they are ready:

    {"id": 7, "us": 12.5}                  (on simulated cores with cold caches)
    {"id": 7, "error": "one line"}

One core runs for each processor, and each device measures by itself, so it pays to ask for many at once. The program
ends when its input does and everything is answered, or with code 3 when a device was lost; what was not answered then
is to be asked again.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import queue
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layoutlab.device.base import DeviceKind
from layoutlab.device.kryo.core import remove_leftovers
from layoutlab.device.rpc.address import RpcAddress
from layoutlab.engine.base import from_json
from layoutlab.engine.relax.tune.executors import STALL_S, WarmExecutor, as_finished, processors
from layoutlab.engine.relax.tune.remote import measure_remote
from layoutlab.engine.relax.tune.rpc_pool import count_devices
from layoutlab.engine.relax.tune.simulated import SIMULATION_S, simulate_candidate
from layoutlab.engine.relay.executor.candidates import Devices
from layoutlab.engine.relay.executor.link import compile_runtime, link_objects
from layoutlab.errors import EXIT_NO_DEVICE, DeviceLost, LayoutlabError

_KRYO = {"mtriple": "aarch64-linux-gnu"}
# A process starts its core with its first candidate, and beside a search that uses all processors that takes its time.
_SIMULATED_S = SIMULATION_S + 150.0


@dataclass(frozen=True, kw_only=True)
class Request:
    """One call of one function; `arguments` are (dtype, shape)."""

    id: Any
    library: str
    function: str
    arguments: list[tuple[str, tuple[int, ...]]]


# What a process of the pool does with a request; files lie in the folder meanwhile. Returns seconds.
Work = Callable[[Request, str], float]


def _simulate(request: Request, folder: str) -> float:
    return simulate_candidate(linked(request, _KRYO, "kryo", folder), request.arguments, folder)


def _measure(devices: Devices, address: RpcAddress, request: Request, folder: str) -> float:
    library = linked(request, devices.target, "rpc", folder)
    options = {"cores": devices.cores, "threads": devices.threads}
    return measure_remote(library, request.arguments, devices.timing, options, address)


def linked(request: Request, target: dict[str, Any], device_kind: DeviceKind, folder: str) -> bytes:
    """The library of a request as today's TVM loads it, with the function as its `main`."""
    runtime = _runtime(request.function, json.dumps(target), device_kind, folder)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        objects = _objects(Path(request.library), Path(name))
        link_objects(Path(name) / "candidate.so", [*objects, runtime], device_kind)
        return (Path(name) / "candidate.so").read_bytes()


@functools.cache
def _runtime(function: str, target: str, device_kind: DeviceKind, folder: str) -> Path:
    """Compiled once in each process."""
    made = Path(tempfile.mkdtemp(dir=folder))
    return compile_runtime(made, target=json.loads(target), device_kind=device_kind, main=function)


def _objects(library: Path, folder: Path) -> list[Path]:
    if library.suffix != ".tar":
        return [library]
    with tarfile.open(library) as archive:
        members = [member for member in archive.getmembers() if member.isfile() and member.name.endswith(".o")]
        for at, member in enumerate(members):
            # Their names are not ours to trust.
            member.name = f"{at}.o"
            archive.extract(member, folder)
    return [folder / member.name for member in members]


class _Answers:
    """Writes answers as they come, from whatever thread, each as one line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def write(self, asked: Any, answer: dict[str, Any]) -> None:
        """Write an answer to the request with the id `asked`."""
        with self._lock:
            print(json.dumps({"id": asked, **answer}), flush=True)


def serve(works: Sequence[Work], timeout_s: float, what: str) -> None:
    """Answer every line of standard input, each of `works` in a process of its own that has `timeout_s` for a request.

    `what` is what errors call it.
    """
    answers = _Answers()
    requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:

        def work_on_requests(work: Work) -> None:
            # Not in the folder: counts depend on the length of the path that a core lies at.
            with WarmExecutor(1, timeout_s) as executor:
                while (request := requests.get()) is not None:
                    future = executor.submit(work, request, folder)
                    ((_, seconds, error),) = as_finished([future], what, timeout_s + STALL_S)
                    _end_if_lost(future)
                    answers.write(request.id, {"error": error} if seconds is None else {"us": seconds * 1e6})

        threads = [threading.Thread(target=work_on_requests, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for line in sys.stdin:
            read = _read(line)
            if isinstance(read, Request):
                requests.put(read)
            else:
                answers.write(*read)
        for _ in threads:
            requests.put(None)
        for thread in threads:
            thread.join()


def _end_if_lost(future: Future[float]) -> None:
    """End the program when the device is gone; the tuner goes on from its log when it is run again."""
    error = None if future.cancelled() else future.exception()
    if isinstance(error, DeviceLost):
        print(f"error: {error}", file=sys.stderr, flush=True)
        # Not an exception: the main thread waits for lines.
        os._exit(EXIT_NO_DEVICE)


def _read(line: str) -> Request | tuple[Any, dict[str, str]]:
    """A request, or the id of one that makes no sense with the answer to it."""
    asked = None
    try:
        request = json.loads(line)
        asked = request.get("id")
        arguments = [(str(dtype), tuple(int(extent) for extent in shape)) for shape, dtype in request["args"]]
        library = Path(request["library"]).resolve()
        if not library.is_file():
            return asked, {"error": f"{library}: there is no such file"}
        return Request(id=asked, library=str(library), function=str(request["function"]), arguments=arguments)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        expected = "expected {id, library, function, args: [[shape, dtype], ...]}, one line of JSON"
        return asked, {"error": f"{expected}: {error!r}"}


def main() -> None:
    """The program. Raises LayoutlabError when there is no core, no device, or no compiler for it."""
    parser = argparse.ArgumentParser(prog="pricing")
    parser.add_argument("--rpc", metavar="FILE", type=Path)
    options = parser.parse_args()
    if options.rpc is None:
        serve([_simulate] * processors(), _SIMULATED_S, "the simulated run")
        # The processes were stopped, and their cores with them, before these could clean up.
        remove_leftovers()
        return
    devices = from_json(Devices, json.loads(options.rpc.read_text()))
    singles = [devices.address.single(number) for number in range(count_devices(devices.address))]
    works = [functools.partial(_measure, devices, single) for single in singles]
    serve(works, devices.address.deadline_s, "the run")


if __name__ == "__main__":
    # By its own name: what the processes of the pool are sent has to be found there.
    from layoutlab.engine.relay.executor import pricing

    try:
        pricing.main()
    except LayoutlabError as _error:
        print(f"error: {_error}", file=sys.stderr)
        sys.exit(_error.exit_code)
