"""Prices candidates of a Relay-era TVM on simulated cores, for a program that is not layoutlab's: lines of JSON.

    python -m layoutlab.engine.relay.executor.pricing

Each line on standard input asks for one call of one function:

    {"id": 7, "library": "candidate.o", "function": "default_function", "args": [[[1, 8, 8, 16], "float32"], ...]}

`library` is what that TVM compiled: an object, a .tar of objects (as AutoTVM's builder exports them), or a library that
`link.link_objects` made; `args` are the shape and type of each tensor. Each line on standard output answers one of
them, as they are ready: {"id": 7, "us": 12.5}, microseconds at the core's clock with cold caches, or
{"id": 7, "error": "one line"}. One core runs for each processor, so it pays to ask for many at once. The program ends
when its input does and everything is answered.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

from layoutlab.device.kryo.core import remove_leftovers
from layoutlab.engine.relax.tune.executors import WarmExecutor, as_finished, processors
from layoutlab.engine.relax.tune.simulated import RUN_S, SIMULATION_S
from layoutlab.engine.relay.executor.link import compile_runtime, link_objects
from layoutlab.errors import LayoutlabError

_KRYO = {"mtriple": "aarch64-linux-gnu"}

Arguments = Sequence[tuple[str, tuple[int, ...]]]


def price(library: str, runtime: str, function: str, arguments: Arguments, folder: str) -> float:
    """Microseconds of one call, with cold caches; `arguments` are (dtype, shape). For the processes of the pool.

    `runtime` is what `link.compile_runtime` made; files lie in `folder` meanwhile.
    """
    from layoutlab.device.kryo import held

    with tempfile.TemporaryDirectory(dir=folder) as work:
        linked = _linked(Path(library), Path(runtime), Path(work))
        return held.core().run_relay_candidate(linked, function, arguments, RUN_S).ms * 1e3


def _linked(library: Path, runtime: Path, folder: Path) -> Path:
    if library.suffix == ".so":
        return library
    objects = [library]
    if library.suffix == ".tar":
        with tarfile.open(library) as archive:
            members = [member for member in archive.getmembers() if member.isfile() and member.name.endswith(".o")]
            for at, member in enumerate(members):
                # Their names are not ours to trust.
                member.name = f"{at}.o"
                archive.extract(member, folder)
        objects = [folder / member.name for member in members]
    link_objects(folder / "candidate.so", [*objects, runtime], "kryo")
    return folder / "candidate.so"


class _Answers:
    """Writes answers as they come, from whatever thread, each as one line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def of(self, asked: Any, future: Future[float]) -> None:
        """Write the answer of a call that has ended."""
        ((_, us, error),) = as_finished([future], "the simulated run")
        self.write(asked, {"us": us} if error is None else {"error": error})

    def write(self, asked: Any, answer: dict[str, Any]) -> None:
        """Write an answer to the request with the id `asked`."""
        with self._lock:
            print(json.dumps({"id": asked, **answer}), flush=True)


def serve() -> None:
    """Answer every line of standard input."""
    answers = _Answers()
    pending: list[Future[float]] = []
    with tempfile.TemporaryDirectory() as folder, WarmExecutor(processors(), SIMULATION_S) as pool:
        runtime = str(compile_runtime(Path(folder), target=_KRYO, device_kind="kryo", graph=False))
        for line in sys.stdin:
            asked, call = _read(line)
            if isinstance(call, str):
                answers.write(asked, {"error": call})
                continue
            library, function, arguments = call
            future = pool.submit(price, library, runtime, function, arguments, folder)
            future.add_done_callback(lambda done, asked=asked: answers.of(asked, done))  # type: ignore[misc]
            pending.append(future)
        wait(pending)
    # The processes were stopped, and their cores with them, before these could clean up.
    remove_leftovers()


def _read(line: str) -> tuple[Any, tuple[str, str, Arguments] | str]:
    """The id of a request, and what to call, or what is wrong with it."""
    asked = None
    try:
        request = json.loads(line)
        asked = request.get("id")
        arguments = [(str(dtype), tuple(int(extent) for extent in shape)) for shape, dtype in request["args"]]
        library = Path(request["library"]).resolve()
        if not library.is_file():
            return asked, f"{library}: there is no such file"
        return asked, (str(library), str(request["function"]), arguments)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return asked, f"expected {{id, library, function, args: [[shape, dtype], ...]}}, one line of JSON: {error!r}"


if __name__ == "__main__":
    try:
        serve()
    except LayoutlabError as _error:
        print(f"error: {_error}", file=sys.stderr)
        sys.exit(_error.exit_code)
