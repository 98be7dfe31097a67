"""Running jobs in a worker process, from the parent's side."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layoutlab import errors
from layoutlab.errors import StageError
from layoutlab.memory import MemoryWatch, machine_limit_bytes
from layoutlab.scratch import Scratch

OnEvent = Callable[[dict[str, Any]], None]

# How often a wait for the worker looks at its memory.
_LOOK_S = 0.5


def run_job(
    verb: str,
    arguments: Mapping[str, Any],
    *,
    log: Path,
    on_event: OnEvent = lambda event: None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
) -> Any:
    """Do `verb` (see `layoutlab.jobs`) in a process of its own and return its result; see `Worker` and `Worker.do`."""
    with Worker(log, environment, memory_bytes) as worker:
        return worker.do(verb, arguments, on_event=on_event, timeout_s=timeout_s)


@dataclass(frozen=True)
class _Wait:
    """For how many seconds a worker may be silent, None for ever, and the cause of its end when it is silent longer."""

    seconds: float | None
    cause: str


class Worker:
    """A worker process, which does jobs one after the other; what it holds (a session with a device) it keeps.

    Everything the jobs print goes to `log`. On any way out of the context, an interrupt included, the worker and the
    processes it started are gone. While a job runs they may have `memory_bytes` in all, and never more than
    `layoutlab.memory.machine_limit_bytes`.
    """

    def __init__(
        self, log: Path, environment: Mapping[str, str] | None = None, memory_bytes: int | None = None
    ) -> None:
        self._log = log
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        log.parent.mkdir(parents=True, exist_ok=True)
        self._scratch = Scratch()
        with open(log, "ab") as log_file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "layoutlab.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_file,
                env={**os.environ, **self._scratch.environment(), **(environment or {})},
                # A group of its own: Ctrl-C reaches the parent alone, which then ends the whole group.
                start_new_session=True,
            )
        limit = machine_limit_bytes()
        self._memory = MemoryWatch(self._process.pid, limit if memory_bytes is None else min(memory_bytes, limit))
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: Any) -> None:
        self.end()

    def do(
        self,
        verb: str,
        arguments: Mapping[str, Any],
        *,
        on_event: OnEvent = lambda event: None,
        timeout_s: float | None = None,
    ) -> Any:
        """Do `verb` (see `layoutlab.jobs`) and return its result, JSON data.

        Raises the job's own error, or StageError when the process died (naming the signal and the stage), was silent
        for `timeout_s`, or for longer than it said itself that something may take, or took too much memory: then it is
        ended, and with it what it held.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # a worker that is dead is reported below
            self._process.stdin.write(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        stage = "start"
        usual = wait = _Wait(timeout_s, f"no sign of life for {timeout_s or 0:.0f} s")
        while True:
            line = self._next_line(stage, wait)
            if line is None:
                self._lines.put(None)
                raise StageError(stage, _cause_of_death(self._process.wait()), str(self._log))
            event = json.loads(line)
            if event["event"] == "result":
                return event["value"]
            if event["event"] == "error":
                raise _rebuild(event, self._log)
            if event["event"] == "limit":
                wait = usual if event["seconds"] is None else _Wait(event["seconds"], event["cause"])
                continue
            if event["event"] == "stage":
                stage = event["name"]
            on_event(event)

    def _next_line(self, stage: str, wait: _Wait) -> bytes | None:
        """The worker's next line, None when there are no more.

        StageError when it takes too long, or when meanwhile it takes too much memory.
        """
        end = float("inf") if wait.seconds is None else time.monotonic() + wait.seconds
        while True:
            if self._memory.exceeded():
                self.end()
                limit = f"{self._memory.limit_bytes / (1 << 30):.1f} GiB"
                cause = f"it took more than {limit} of memory, its limit here; the process was ended"
                raise StageError(stage, cause, str(self._log))
            left_s = end - time.monotonic()
            try:
                return self._lines.get(timeout=max(0.0, min(_LOOK_S, left_s)))
            except queue.Empty:
                if not self.alive:
                    return None  # what it started may hold its output open
                if left_s > 0:
                    continue
                self.end()
                raise StageError(stage, f"{wait.cause}; the process was ended", str(self._log)) from None

    @property
    def alive(self) -> bool:
        """Whether it can do another job."""
        return self._process.poll() is None

    def _read(self) -> None:
        """The worker's events as they come; None when there are no more."""
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):  # closed by `end`
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def end(self) -> None:
        """End the process and all that it started."""
        # The group outlives its leader while pool processes run, so it is always ended as a group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._scratch.remove()


def _rebuild(event: dict[str, str], log: Path) -> errors.LayoutlabError:
    """The error a worker reported, as the class it was there."""
    kind: Any = getattr(errors, event["kind"], StageError)
    if issubclass(kind, StageError):
        failed: StageError = kind(event["stage"], event["cause"], str(log))
        return failed
    rebuilt: errors.LayoutlabError = kind(event["cause"])
    return rebuilt


def _cause_of_death(code: int) -> str:
    if code < 0:
        try:
            return f"the process was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"the process was killed by signal {-code}"
    return f"the process ended with code {code} and no result"
