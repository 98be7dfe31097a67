"""The command line. Results go to standard output, progress and errors to standard error.

Nothing heavy is imported here: `--help`, `validate`, `plan` and `schema` answer at once.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from typing import Any

from layoutlab.commands import looking, machine, results, running
from layoutlab.commands.options import RESULTS, complain
from layoutlab.compare import command as compare_command
from layoutlab.discuss import command as discuss_command
from layoutlab.errors import EXIT_INTERRUPTED, LayoutlabError, SpecError
from layoutlab.records import commands as records_commands
from layoutlab.triage import command as triage_command
from layoutlab.utf8 import use_utf8


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (see `layoutlab.errors`)."""
    if arguments is None:
        use_utf8()
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return int(options.command(options))
    except SpecError as error:
        complain("\n".join(error.problems))
        return error.exit_code
    except LayoutlabError as error:
        complain(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        complain(running.how_to_go_on(options))
        return EXIT_INTERRUPTED


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="layoutlab",
        description="Compare data layouts of a TFLite model compiled by Apache TVM, next to TFLite itself.",
        epilog="exit codes: 0 fine, 1 a variant failed, 2 usage, spec or model, 3 no device, 4 wrong outputs, "
        "130 interrupted",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    running.add_commands(commands)
    looking.add_commands(commands)
    results.add_commands(commands)
    compare_command.add_arguments(
        commands.add_parser("compare", help="results of several specs in one table, or of one spec across time"),
        RESULTS,
    )
    discuss_command.add_arguments(
        commands.add_parser("discuss", help="a Markdown post about finished runs, for a discussion of layouts"),
        RESULTS,
    )
    triage = commands.add_parser(
        "triage", help="what a log of TVM tells: untuned workloads, slow functions, what to try next"
    )
    triage.description = triage_command.DESCRIPTION
    triage_command.add_arguments(triage)
    triage.set_defaults(command=triage_command.run)
    records = commands.add_parser("records", help="tuning records as files: show, export, merge, prune")
    records_commands.add_arguments(records, RESULTS)
    machine.add_commands(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
