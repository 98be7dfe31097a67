"""A worker process: takes one job, does it, and speaks JSON lines on what was its standard output.

TVM and LiteRT can crash the process they live in, write to any stream they like, and take seconds to import;
here that costs one job. `python -m layoutlab.worker` reads one line, `{"verb": ..., ...}`, from standard input and
answers with lines of the forms

    {"event": "stage", "name": ...}         a stage of the job begins
    {"event": "trials", ...}                progress of that stage
    {"event": "result", "value": ...}       the job is done
    {"event": "error", "stage": ..., "cause": ..., "kind": ...}

When standard input closes, the parent is gone, and the worker ends with every process it started.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, TextIO

from layoutlab.errors import LayoutlabError, StageError, first_message


def main() -> int:
    """Do the one job on standard input; 0 when a result was sent."""
    stream = _take_stdout()
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_die_with_parent, daemon=True).start()
    stage = "start"

    def report(event: str, **fields: Any) -> None:
        nonlocal stage
        if event == "stage":
            stage = fields["name"]
        print(json.dumps({"event": event, **fields}), file=stream, flush=True)

    try:
        report("result", value=_do(job, report))
        return 0
    except Exception as error:
        traceback.print_exc()
        report("error", **_describe(error, stage))
        return 1


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


def _die_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
