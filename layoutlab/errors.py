"""Every error layoutlab raises on purpose, and the exit code each one ends with.

LayoutlabError
├── UsageError        2  the command line asks for something that does not exist
├── SpecError         2  the YAML spec is wrong; carries every problem found, each with its place
├── ModelError        2  the model file is missing, changed, malformed or rejected by TFLite
├── BaselineError     2  the baseline's tool failed, or its saved results cannot be used
├── DeviceError       3  no device can run the target, or the device lacks what a run needs
│   ├── DeviceBusy    3  a device is there, and somebody else uses it
│   └── DeviceLost    3  a device that was there went away
├── StoreError        1  the results folder cannot be used (locked, read-only, written by a newer version)
└── StageError        1  one stage of one variant failed; the other variants go on
    └── WrongOutputs  4  the variant ran, but its outputs differ from TFLite's

Anything else that escapes is a bug in layoutlab and is shown with its traceback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

EXIT_OK = 0
EXIT_VARIANT_FAILED = 1
EXIT_USAGE = 2
EXIT_NO_DEVICE = 3
EXIT_WRONG_OUTPUTS = 4
EXIT_INTERRUPTED = 130


class LayoutlabError(Exception):
    """An error whose message is written for the user: what, where, and what to do next."""

    exit_code = EXIT_VARIANT_FAILED


class UsageError(LayoutlabError):
    """The command line names something that does not exist."""

    exit_code = EXIT_USAGE


class SpecError(LayoutlabError):
    """The spec is wrong. `problems` holds the text of each problem (place, source line, caret), in file order."""

    exit_code = EXIT_USAGE

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class ModelError(LayoutlabError):
    """The model cannot be used as a model."""

    exit_code = EXIT_USAGE


class BaselineError(LayoutlabError):
    """The tool that measures the baseline failed, or what it reported cannot be used."""

    exit_code = EXIT_USAGE


class DeviceError(LayoutlabError):
    """No device is able to run what the spec asks for."""

    exit_code = EXIT_NO_DEVICE


class DeviceBusy(DeviceError):
    """Devices over RPC are there, and all of them are in use."""


class DeviceLost(DeviceError):
    """A device over RPC went away, or gives no answer any more."""


class StoreError(LayoutlabError):
    """The results folder cannot be used."""


class StageError(LayoutlabError):
    """One stage of one variant (or of the baseline) failed.

    `stage` is the stage's name, `cause` one line, `log` the path of the worker's full log.
    """

    def __init__(self, stage: str, cause: str, log: str = "") -> None:
        self.stage, self.cause, self.log = stage, cause, log
        super().__init__(f"{stage}: {cause}" + (f" (log: {log})" if log else ""))

    def __reduce__(self) -> tuple[type[StageError], tuple[str, str, str]]:
        # Pools send errors from process to process.
        return type(self), (self.stage, self.cause, self.log)


class WrongOutputs(StageError):
    """The variant's outputs differ from TFLite's by more than the spec allows."""

    exit_code = EXIT_WRONG_OUTPUTS


_LONGEST_MESSAGE = 300
# A schedule error of TVM shows the whole program first; what is wrong stands below it.
_SCHEDULE_ERROR = re.compile(r"^Error message: *(.+)$", re.MULTILINE)
# What stands above a message instead of being one; indented lines below a traceback belong to it.
_TRACE = re.compile(r"^(Traceback \(most recent call last\)|Stack trace).*:?$")
_HEADING = re.compile(r"^(Compilation error|Error caught from RPC call|An error occurred during .*):$")
# Where a message was written: [12:00:00] /path/file.cc:12: , file.py:3:4: , and stack frames: 0: , [bt] (0)
_PLACE = re.compile(r"^(\[\d\d:\d\d:\d\d\] )?(\S+\.(cc|cpp|c|h|hpp|py):\d+(:\d+)?:? *)?")
_FRAME = re.compile(r"^\s*(File \".*\", line \d+.*|\[bt\].*|\d+: .*)$")


def printable(text: str) -> str:
    """One line without characters that steer a terminal or turn the direction of writing: each becomes U+FFFD."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def first_message(error: BaseException | str) -> str:
    """The line of an error's text that says what is wrong, at most 300 characters; "no message" when there is none.

    That is the first line which is not a traceback, a heading or a place in a source file: compilers and linkers go
    on with what follows from it. Of a schedule error of TVM it is the line below the program.
    """
    text = str(error)
    found = _SCHEDULE_ERROR.search(text)
    message = found[1] if found else next(_messages(text), "no message")
    return printable(message.removeprefix(f"{type(error).__name__}: ")[:_LONGEST_MESSAGE])


def _messages(text: str) -> Iterator[str]:
    """The lines of a text that are messages, without the places in front of them."""
    in_trace = False
    for line in text.splitlines():
        if _TRACE.match(line.strip()):
            in_trace = True
            continue
        in_trace = in_trace and (not line.strip() or line[0].isspace())
        if in_trace or _FRAME.match(line) or _HEADING.match(line.strip()):
            continue
        message = _PLACE.sub("", line.strip()).strip()
        if message:
            yield message
