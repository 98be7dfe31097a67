"""`layoutlab triage`: what a log of TVM tells, and what to try next."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from layoutlab.errors import EXIT_OK, UsageError

DESCRIPTION = (
    "Read a log of TVM as it was printed or pasted (warnings about missing records, AutoTVM's progress, tables of "
    "times, Relay text; also mixed, coloured or cut) and say what is untuned, what tuning could not do, what "
    "dominates, and what to try next."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("log", metavar="LOG", help="a text file, or - for standard input")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(options: argparse.Namespace) -> int:
    """Read the log and show what it tells. Raises UsageError when nothing in it is known."""
    from layoutlab.triage.read import FORMS, read_log
    from layoutlab.triage.report import triage_json, triage_text

    name = "standard input" if options.log == "-" else options.log
    log = read_log(_read(options.log))
    if not log.is_known:
        forms = "\n".join(f"  {form}" for form in FORMS)
        raise UsageError(f"{name}: nothing that layoutlab knows in {log.lines} lines with text. It reads:\n{forms}")
    print(triage_json(name, log) if options.json else triage_text(name, log), end="")
    return EXIT_OK


def _read(name: str) -> bytes:
    from layoutlab.triage.text import MAX_BYTES

    if name == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        with Path(name).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read the log {name}: {reason}") from error
