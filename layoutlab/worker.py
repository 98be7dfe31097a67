"""A worker process: takes jobs, does them one after the other, and speaks JSON lines on what was its standard output.

TVM and LiteRT can crash the process they live in, write to any stream they like, and take seconds to import;
here that costs one job. `python -m layoutlab.worker` reads a job a line, `{"verb": ..., ...}`, from standard input and
answers each with lines of the forms

    {"event": "stage", "name": ...}         a stage of the job begins
    {"event": "trials", ...}                progress of that stage
    {"event": "limit", "seconds": ..., "cause": ...}    what comes may take so long, and then failed for this cause
    {"event": "result", "value": ...}       the job is done
    {"event": "error", "stage": ..., "cause": ..., "kind": ...}

When standard input closes, the parent is gone, and the worker ends with every process it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from layoutlab.errors import LayoutlabError, StageError, first_message
from layoutlab.scratch import name_semaphores


def main() -> int:
    """Do the jobs on standard input, one after the other, until this process is ended from outside."""
    stream = _take_stdout()
    name_semaphores()
    for job in _jobs():
        _answer(job, stream)
    return 0


def _jobs() -> Iterator[dict[str, Any]]:
    """The jobs as they come. When standard input closes, the parent is gone, and so is this process at once."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        # Not through sys.stdin, whose lock a thread that waits would hold when the interpreter ends.
        begun = b""
        while chunk := os.read(0, 1 << 16):
            *whole, begun = (begun + chunk).split(b"\n")
            for line in whole:
                lines.put(line)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield json.loads(lines.get())


def _answer(job: dict[str, Any], stream: TextIO) -> None:
    stage = "start"

    def report(event: str, **fields: Any) -> None:
        nonlocal stage
        if event == "stage":
            stage = fields["name"]
        print(json.dumps({"event": event, **fields}), file=stream, flush=True)

    try:
        report("result", value=_do(job, report))
    except Exception as error:
        # The log may be on the disk that is full.
        with contextlib.suppress(OSError):
            traceback.print_exc()
        report("error", **_describe(error, stage))


def _do(job: dict[str, Any], report: Callable[..., None]) -> Any:
    # Imported here: a job pays only for what it needs.
    from layoutlab import jobs

    return jobs.VERBS[job.pop("verb")](report=report, **job)


def _describe(error: Exception, stage: str) -> dict[str, str]:
    if isinstance(error, StageError):
        return {"kind": type(error).__name__, "stage": error.stage, "cause": error.cause}
    if isinstance(error, LayoutlabError):
        return {"kind": type(error).__name__, "stage": stage, "cause": str(error)}
    return {"kind": "StageError", "stage": stage, "cause": f"{type(error).__name__}: {first_message(error)}"}


def _take_stdout() -> TextIO:
    """Keep standard output for events, and send what libraries print to standard error (the job's log)."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return events


if __name__ == "__main__":
    sys.exit(main())
