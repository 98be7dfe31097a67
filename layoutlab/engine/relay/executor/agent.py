"""The agent that also runs what a Relay-era TVM built: `layoutlab.agent` with one more kind of model.

`layoutlab agent` is this one. A simulated core gets it for such libraries alone, and `layoutlab.agent` itself for all
else: what a core's Python has imported moves the figures of everything that it counts.
"""

from __future__ import annotations

import argparse
import sys

from layoutlab import agent
from layoutlab.engine.relay.executor.function_times import time_functions
from layoutlab.engine.relay.executor.runner import register
from layoutlab.errors import LayoutlabError
from layoutlab.session_worker import Verbs

_usual_verbs = agent._verbs


def _verbs(name: str) -> Verbs:
    return {**_usual_verbs(name), "time_functions": time_functions}


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
