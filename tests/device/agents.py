"""Agents and trackers as processes, and sessions with them, for tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LAYOUTLAB = [sys.executable, "-m", "layoutlab"]
TIME_LIMIT_S = 30.0


@contextmanager
def serving(command: Sequence[str], what: str, **popen: Any) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A program that says first where it listens; gives it and its port."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, **{"stderr": subprocess.DEVNULL, **popen}, start_new_session=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(f"layoutlab {what} listens on 127.0.0.1:"), line
        yield process, int(line.rpartition(":")[2])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        process.stdout.close()


@contextmanager
def running(*options: str, command: Sequence[str] = (*LAYOUTLAB, "agent"), **popen: Any) -> Iterator[int]:
    """An agent of this machine; gives its port."""
    with serving([*command, "--port", "0", *options], "agent", **popen) as (process, port):
        yield port
        assert process.poll() is None, "the agent did not survive"


@contextmanager
def plain_server(*options: str) -> Iterator[int]:
    """TVM's own RPC server, without layoutlab."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tvm.exec.rpc_server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--port-end", str(port + 1), *options]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.terminate()
        process.wait()


@contextmanager
def listening() -> Iterator[str]:
    """Somebody who takes connections and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command that ends by itself."""
    done = subprocess.run([*LAYOUTLAB, *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


class Remote:
    """A session, as any TVM RPC client has it."""

    def __init__(self, session: Any) -> None:
        from layoutlab.agent import DO

        self.session: Any = session
        self._do = session.get_function(DO)

    def ask(self, verb: str, *limit: float | str, **arguments: Any) -> Any:
        """The answer to a verb: its value, or {"error": ...}."""
        answer = json.loads(str(self._do(verb, json.dumps(arguments), *limit)))
        return answer if "error" in answer else answer["value"]

    def load(self, path: Path, *limit: float | str) -> Any:
        """Load a library in a verb."""
        return self.ask("count_candidate", *limit, library=str(path), arguments=[], marks="")

    def close(self) -> None:
        self.session = self._do = None


@contextmanager
def session(port: int, key: str = "", timeout_s: int = 60) -> Iterator[Remote]:
    """A session with an agent."""
    # Imports TVM: not while tests are collected.
    from tvm import rpc

    remote = Remote(rpc.connect("127.0.0.1", port, key, session_timeout=timeout_s))
    try:
        yield remote
    finally:
        remote.close()


def library(folder: Path, body: str, name: str = "library") -> Path:
    """A shared library that does `body` when it is loaded."""
    source = folder / f"{name}.c"
    headers = "".join(f"#include <{header}.h>\n" for header in ("sched", "signal", "stdio", "stdlib", "unistd"))
    source.write_text(
        f"#define _GNU_SOURCE\n{headers}__attribute__((constructor)) static void start(void) {{ {body} }}\n"
    )
    path = folder / f"{name}.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    return path


def hanging(folder: Path) -> tuple[Path, Path]:
    """A library that hangs, with a process that it started; and the file with the numbers of both."""
    pids = folder / "pids"
    body = f"""
        int child = fork();
        if (child == 0) for (;;) pause();
        FILE *file = fopen("{pids}.new", "w");
        fprintf(file, "%d %d", getpid(), child);
        fclose(file);
        rename("{pids}.new", "{pids}");
        for (;;) {{}}
    """
    return library(folder, body, "hanging"), pids


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Wait for something that other processes do."""
    deadline = time.monotonic() + TIME_LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {TIME_LIMIT_S:.0f} s"
        time.sleep(0.02)


def are_gone(pids: Path) -> bool:
    """Whether none of the processes in the file runs any more."""
    return not any(_runs(int(pid)) for pid in pids.read_text().split())


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def base_site(folder: Path, packages: Sequence[str]) -> dict[str, str]:
    """The environment of a Python (with -S) that has this project, and of the installed packages only these."""
    import numpy

    installed = Path(numpy.__file__).parents[1]
    folder.mkdir()
    for package in packages:
        for path in installed.glob(f"{package}*"):
            (folder / path.name).symlink_to(path)
    project = Path(__file__).resolve().parents[2]
    return {**os.environ, "PYTHONPATH": f"{folder}:{project}"}
