"""Running one job in a worker process, from the parent's side."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from layoutlab import errors
from layoutlab.errors import StageError

OnEvent = Callable[[dict[str, Any]], None]


def run_job(
    verb: str,
    arguments: Mapping[str, Any],
    *,
    log: Path,
    on_event: OnEvent = lambda event: None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> Any:
    """Do `verb` (see `layoutlab.jobs`) in a process of its own and return its result, JSON data.

    Everything the job prints goes to `log`. Raises the worker's own error, or StageError when the process died
    (naming the signal and the stage) or was silent for `timeout_s`. On any way out of here, an interrupt
    included, the worker and the processes it started are gone.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as log_file:
        process = subprocess.Popen(
            [sys.executable, "-m", "layoutlab.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log_file,
            env={**os.environ, **(environment or {})},
            # A group of its own: Ctrl-C reaches the parent alone, which then ends the whole group.
            start_new_session=True,
        )
    try:
        return _converse(process, {"verb": verb, **arguments}, log, on_event, timeout_s)
    finally:
        _end(process)


def _converse(
    process: subprocess.Popen[bytes],
    job: dict[str, Any],
    log: Path,
    on_event: OnEvent,
    timeout_s: float | None,
) -> Any:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # a worker that died at once is reported below
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
    stage = "start"
    for event in _events(process, timeout_s):
        if event is None:
            raise StageError(stage, f"no sign of life for {timeout_s:.0f} s; the process was ended", str(log))
        if event["event"] == "result":
            return event["value"]
        if event["event"] == "error":
            raise _rebuild(event, log)
        if event["event"] == "stage":
            stage = event["name"]
        on_event(event)
    raise StageError(stage, _cause_of_death(process.wait()), str(log))


def _events(process: subprocess.Popen[bytes], timeout_s: float | None) -> Any:
    """The worker's events as they come; None when it was silent too long; ends when the worker does."""
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=timeout_s)
        except queue.Empty:
            yield None
            return
        if line is None:
            return
        yield json.loads(line)


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


def _end(process: subprocess.Popen[bytes]) -> None:
    # The group outlives its leader while pool processes run, so it is always ended as a group.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
