"""Every error layoutlab raises on purpose, and the exit code each one ends with.

LayoutlabError
├── UsageError        2  the command line asks for something that does not exist
├── SpecError         2  the YAML spec is wrong; carries every problem found, each with its place
├── ModelError        2  the model file is missing, changed, malformed or rejected by TFLite
├── DeviceError       3  no device can run the target, or the device lacks what a run needs
├── StoreError        1  the results folder cannot be used (locked, read-only, written by a newer version)
└── StageError        1  one stage of one variant failed; the other variants go on
    └── WrongOutputs  4  the variant ran, but its outputs differ from TFLite's

Anything else that escapes is a bug in layoutlab and is shown with its traceback.
"""

from __future__ import annotations

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


class DeviceError(LayoutlabError):
    """No device is able to run what the spec asks for."""

    exit_code = EXIT_NO_DEVICE


class StoreError(LayoutlabError):
    """The results folder cannot be used."""


class StageError(LayoutlabError):
    """One stage of one variant (or of the baseline) failed.

    `stage` is the stage's name, `cause` one line, `log` the path of the worker's full log.
    """

    def __init__(self, stage: str, cause: str, log: str = "") -> None:
        self.stage, self.cause, self.log = stage, cause, log
        super().__init__(f"{stage}: {cause}" + (f" (log: {log})" if log else ""))


class WrongOutputs(StageError):
    """The variant's outputs differ from TFLite's by more than the spec allows."""

    exit_code = EXIT_WRONG_OUTPUTS
