"""What was looked at, what was found, and what to do about it: the form of everything that `layoutlab doctor` says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tabulate import tabulate

State = Literal["ok", "later", "unknown", "warning", "missing", "failed", "not tried"]
# Nothing can run with these.
BROKEN: tuple[State, ...] = ("missing", "failed", "not tried")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One part or one link of a chain.

    `ok`; `later`: made by itself when it is needed; `unknown`: cannot be told; `warning`: works, and figures may
    suffer; `missing` or `failed`; `not tried`: it needs what failed. `todo` has a text for each lack.
    """

    part: str
    state: State
    detail: str
    todo: tuple[str, ...] = ()


def findings_text(findings: Sequence[Finding], last: str) -> str:
    """A table, what to do, and the line `last`."""
    rows = [(finding.part, finding.state, finding.detail) for finding in findings]
    lines = [tabulate(rows, headers=("part", "state", "details"), tablefmt="simple", disable_numparse=True), ""]
    todo = [f"  {finding.part}: {text}" for finding in findings for text in finding.todo]
    if todo:
        lines += ["to do:", *todo, ""]
    return "\n".join([*lines, last, ""])
