"""The agent that also runs what a Relay-era TVM built: `layoutlab.agent` with one more kind of model and verb.

`layoutlab agent` is this one. A simulated core gets it for such libraries alone, and `layoutlab.agent` itself for all
else: what a core's Python has imported moves the figures of everything that it counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from layoutlab import agent
from layoutlab.device.on_device import _counter, random_values
from layoutlab.engine.relay.executor.function_times import time_functions
from layoutlab.engine.relay.executor.runner import Calls, open_library, register
from layoutlab.errors import LayoutlabError
from layoutlab.session_worker import Verbs


def count_relay_candidate(
    library: str, function: str, arguments: Sequence[tuple[str, Sequence[int]]], marks: str
) -> dict[str, Any]:
    """Count one call of a function of a candidate's library with cold caches; see `on_device.count_candidate`."""
    tensors = [random_values(dtype, tuple(shape)) for dtype, shape in arguments]
    calls = Calls(open_library(library), [(function, tensors)])
    return {"pid": _counter(marks)(calls.run, cold=True)}


_usual_verbs = agent._verbs


def _verbs(name: str) -> Verbs:
    return {**_usual_verbs(name), "time_functions": time_functions, "count_relay_candidate": count_relay_candidate}


def run(options: argparse.Namespace) -> int:
    """As `layoutlab.agent.run`."""
    register()
    agent._verbs = _verbs
    return agent.run(options)


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(prog="layoutlab agent", description=agent.DESCRIPTION)
    agent.add_arguments(_parser)
    try:
        sys.exit(run(_parser.parse_args()))
    except LayoutlabError as _error:
        print(f"error: {_error}", file=sys.stderr)
        sys.exit(_error.exit_code)
