"""One simulated Kryo core: an agent under qemu with the counting plugin, and what it counted, as cycles.

Imports TVM: for worker processes.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import psutil

import layoutlab
from layoutlab.device.agent_session import AgentSession
from layoutlab.device.kryo.counts import Counts, read_counts
from layoutlab.device.kryo.cycles import Cycles, by_function, count_cycles
from layoutlab.device.kryo.price import Price, Pricer
from layoutlab.device.kryo.symbols import parts_of
from layoutlab.device.kryo.toolchain import Toolchain
from layoutlab.errors import DeviceError
from layoutlab.scratch import system_folder
from layoutlab.session_worker import die_with_parent

# Kryo 280's gold cores derive from Cortex-A73: ARMv8.0 with CRC and crypto, as Cortex-A72, the last of that kind which
# qemu knows. Its default has SVE, half floats and atomics, and libraries would choose kernels that Kryo cannot run.
_CPU = "cortex-a72"
# What the guest's Python is told to be; files it looks for are found in the guest's root first.
_PYTHON = "/usr/bin/python3"
# The agent starts in 6 to 10 s; a machine that is busy with something else gets its time.
_START_S = 180.0
# A core's folder is named after the process that it belongs to.
_FOLDERS = "layoutlab-kryo-"
_LOG = "agent.log"
# What serves on a core, by the kind of model where it is not the usual one. Cores are not shared between these: what
# the guest's Python has imported lies in memory, and moves what is counted.
_AGENT = "layoutlab.agent"
_AGENTS = {"relay_artifact": "layoutlab.engine.relay.executor.agent"}
# A session that outlives its time by this much has lost its agent.
_GRACE_S = 10.0

# Counts have to repeat exactly, so whatever is drawn at random in a process, or depends on when a thing is first
# used, is fixed: Python's hashes, the symbols resolved at the first call, the size from which malloc maps pages.
_ENVIRONMENT = {
    "PYTHONHOME": "/usr",
    "TVM_USE_RUNTIME_LIB": "1",
    "TVM_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    # Imports look into the working folder otherwise, which counts change.
    "PYTHONSAFEPATH": "1",
    "LD_BIND_NOW": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_ARENA_MAX": "1",
    # For qemu itself: GLib's own allocator has locks that a fork copies in whatever state they are, and the child then
    # waits for ever.
    "G_SLICE": "always-malloc",
    "PATH": "/usr/bin:/bin",
    "LC_ALL": "C.UTF-8",
}


class SimulatedCore:
    """Runs aarch64 code and counts it. One core does one thing at a time; several run side by side."""

    def __init__(self, toolchain: Toolchain, log: TextIO | None = None, agent: str = _AGENT) -> None:
        """Start the core's agent; its output goes to `log` in the end. Raises DeviceError when it does not start.

        `agent` is the module that serves there.
        """
        self._log = log
        remove_leftovers()
        self._counts = Path(tempfile.mkdtemp(prefix=f"{_FOLDERS}{os.getpid():08}-", dir=system_folder()))
        self._marks = self.place(toolchain.marks, "marks.so")
        self._agent = _start_agent(toolchain, self._counts, agent)
        try:
            self._port = _read_port(self._agent)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SimulatedCore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the agent with every session of it."""
        self._kill()
        self._agent.wait()
        if self._log is not None:
            self._log.write((self._counts / _LOG).read_text(errors="replace"))
            self._log.flush()
        shutil.rmtree(self._counts, ignore_errors=True)

    def _kill(self) -> None:
        for child in _children(self._agent.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._agent.kill()

    @contextlib.contextmanager
    def session(self, timeout_s: float) -> Iterator[AgentSession]:
        """A fresh process of the core, ended after `timeout_s`.

        When even the agent does not answer any more, the core is ended: that frees the caller, and `alive` tells.
        """
        watchdog = threading.Timer(timeout_s + _GRACE_S, self._kill)
        watchdog.daemon = True
        watchdog.start()
        session = None
        try:
            session = AgentSession("127.0.0.1", self._port, timeout_s=timeout_s)
            yield session
        finally:
            watchdog.cancel()
            if session is not None:
                session.close()

    @property
    def variant(self) -> Path:
        """Where the core sees the variant that it was given last."""
        return self._counts / "model.so"

    @property
    def alive(self) -> bool:
        """Whether the core can be used (again)."""
        return self._agent.poll() is None

    def count_inference(
        self, runner: dict[str, Any], inputs: Path, timeout_s: float
    ) -> tuple[Counts, list[tuple[int, int, str]], str]:
        """One inference with warm caches: its counts, where the libraries lay, and what ran it.

        `runner` is as for `device.runners.open_runner`.
        """
        paths = {"runner": self.placed_runner(runner), "inputs": self.place(inputs, "inputs.npz")}
        with self.session(timeout_s) as session:
            done = session.do("count_inference", **paths, marks=self._marks)
        return self._take_counts(done["pid"]), [tuple(item) for item in done["loaded"]], done["runtime"]

    def count_candidate(
        self, library: Path, arguments: Sequence[tuple[str, tuple[int, ...]]], timeout_s: float
    ) -> Counts:
        """One call of `main` in a library with cold caches; `arguments` are (dtype, shape) of its tensors."""
        path = self.place(library, "candidate.so")
        with self.session(timeout_s) as session:
            done = session.do("count_candidate", library=path, arguments=arguments, marks=self._marks)
        return self._take_counts(done["pid"])

    def placed_runner(self, runner: dict[str, Any]) -> dict[str, Any]:
        """The runner with a copy of its file in the core's folder."""
        return {**runner, "path": self.place(Path(runner["path"]), "model" + Path(runner["path"]).suffix)}

    def place(self, path: Path, name: str) -> str:
        """Copy a file into the core's folder; returns its path there.

        That is as long wherever the file comes from: strings take memory, and what else is in memory moves with them.
        """
        shutil.copyfile(path, self._counts / name)
        return str(self._counts / name)

    def _take_counts(self, pid: int) -> Counts:
        path = self._counts / f"{pid}.counts"
        counts = read_counts(path)
        path.unlink()
        return counts


def remove_leftovers() -> None:
    """Remove the folders of cores whose processes were killed before they could do it."""
    for folder in system_folder().glob(f"{_FOLDERS}*"):
        owner = folder.name.removeprefix(_FOLDERS)[:8]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class Inference:
    """One counted inference: its cycles, those of each function (which sum to it exactly), and what ran it."""

    cycles: Cycles
    functions: list[tuple[str, Cycles]]
    runtime: str


class PricedCore:
    """A simulated core that answers in cycles. It starts when it is first needed, and again when it was lost.

    It is two where both kinds of libraries are run: those of a Relay-era TVM have one of their own.
    """

    def __init__(self, toolchain: Toolchain, log: TextIO | None = None) -> None:
        self._toolchain, self._log = toolchain, log
        self._cores: dict[str, SimulatedCore] = {}
        self._pricer = Pricer(toolchain, toolchain.folder.parent)

    def __enter__(self) -> PricedCore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the core; it starts again when it is needed."""
        while self._cores:
            self._cores.popitem()[1].close()

    def core(self, kind: str = "artifact") -> SimulatedCore:
        """The core for a kind of runner (see `device.runners.open_runner`), started."""
        agent = _AGENTS.get(kind, _AGENT)
        if agent in self._cores and not self._cores[agent].alive:
            self._cores.pop(agent).close()
        if agent not in self._cores:
            self._cores[agent] = SimulatedCore(self._toolchain, self._log, agent)
        return self._cores[agent]

    def run_inference(self, runner: dict[str, Any], inputs: Path, timeout_s: float) -> Inference:
        """One inference with warm caches; see `SimulatedCore.count_inference`."""
        core = self.core(runner["kind"])
        counts, loaded, runtime = core.count_inference(runner, inputs, timeout_s)
        prices = self._prices(counts)
        symbols = parts_of(loaded, core.variant if runner["kind"] != "tflite" else None)
        return Inference(
            cycles=count_cycles(counts, prices), functions=by_function(counts, prices, symbols), runtime=runtime
        )

    def run_candidate(
        self, library: Path, arguments: Sequence[tuple[str, tuple[int, ...]]], timeout_s: float
    ) -> Cycles:
        """One call of `main` with cold caches; see `SimulatedCore.count_candidate`."""
        counts = self.core().count_candidate(library, arguments, timeout_s)
        return count_cycles(counts, self._prices(counts))

    def _prices(self, counts: Counts) -> Mapping[bytes, Price]:
        return self._pricer.price(block.words for block in counts.blocks)


def _start_agent(toolchain: Toolchain, folder: Path, agent: str) -> subprocess.Popen[bytes]:
    # Under names that are as long on every machine. The guest finds this package, and nothing else of this machine's.
    (folder / "site").symlink_to(toolchain.site)
    (folder / "tmp").mkdir()
    (folder / "path").mkdir()
    (folder / "path" / "layoutlab").symlink_to(Path(layoutlab.__file__).resolve().parent)
    command = [
        *toolchain.qemu,
        "-cpu",
        _CPU,
        "-plugin",
        f"{toolchain.counter},out={folder}",
        "-0",
        _PYTHON,
        str(toolchain.python),
        "-m",
        agent,
        "--port",
        "0",
    ]
    # A log of its own: even what kind of file standard error is, and how long, shows in the guest's memory.
    with open(folder / _LOG, "wb") as log:
        return subprocess.Popen(
            command,
            env={
                **_ENVIRONMENT,
                "PYTHONPATH": f"{folder / 'site'}:{folder / 'path'}",
                "HOME": str(folder),
                "TMPDIR": str(folder / "tmp"),
            },
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            preexec_fn=die_with_parent,
        )


def _children(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _read_port(agent: subprocess.Popen[bytes]) -> int:
    """The port from the first line that the agent prints."""
    assert agent.stdout is not None
    deadline = time.monotonic() + _START_S
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([agent.stdout], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(agent.stdout.fileno(), 4096) if ready else b""
        if not chunk:
            why = f"no sign of life for {_START_S:.0f} s" if not ready else f"it ended with code {agent.wait()}"
            raise DeviceError(
                f"the simulated Kryo core does not start: {why}. Its output is in the job's log; "
                "layoutlab doctor shows what the core is made of"
            )
        line += chunk
    return int(line.rpartition(b":")[2])
