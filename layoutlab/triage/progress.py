"""AutoTVM's progress: one task after the other, how many candidates each had, and how fast the best was.

    [Task  1/36]  Current/Best:    0.00/   0.00 GFLOPS | Progress: (5/5) | 10.23 s Done.

A terminal overwrites such a line again and again; in a log the last state of each task counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_TASK = re.compile(
    r"\[Task\s+(?P<number>\d{1,6})\s*/\s*(?P<tasks>\d{1,6})\]\s*Current/Best:\s*(?P<now>[\d.]+)\s*/\s*(?P<best>[\d.]+)\s*"
    r"(?P<prefix>[KMGT]?)FLOPS\s*\|\s*Progress:\s*\((?P<tried>\d{1,9})/(?P<trials>\d{1,9})\)\s*\|\s*(?P<seconds>[\d.]+)\s*s"
)
_TASK_BEGUN = re.compile(r"\[Task\s+\d+\s*/\s*\d+\]")
_GIGA = {"": 1e-9, "K": 1e-6, "M": 1e-3, "G": 1.0, "T": 1e3}
_ERROR = re.compile(r"error_no=(?:MeasureErrorNo\.)?(\d+|[A-Z_]+)")
_NO_SCHEDULE = re.compile(r"Could not find any valid schedule for task (.+?)(?:\. A file containing.*)?$")
_TOO_MANY_ERRORS = "Too many errors happen in the tuning"

# The numbers of AutoTVM's MeasureErrorNo.
_ERROR_NAMES = {
    "0": "NO_ERROR",
    "1": "INSTANTIATION_ERROR",
    "2": "COMPILE_HOST",
    "3": "COMPILE_DEVICE",
    "4": "RUNTIME_DEVICE",
    "5": "WRONG_ANSWER",
    "6": "BUILD_TIMEOUT",
    "7": "RUN_TIMEOUT",
    "8": "UNKNOWN_ERROR",
}


@dataclass(frozen=True, kw_only=True)
class TaskProgress:
    """The last state of one task: `tried` of `trials` candidates, the best so far, and the time they took."""

    number: int
    tried: int
    trials: int
    best_gflops: float
    seconds: float
    done: bool

    @property
    def none_valid(self) -> bool:
        """Whether candidates were tried and the best is shown as 0.00."""
        return self.tried > 0 and self.best_gflops == 0


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One session of tuning: its tasks in order, of `tasks_in_all`."""

    tasks_in_all: int
    tasks: tuple[TaskProgress, ...]

    @property
    def n_trial(self) -> int:
        """The candidates that were asked for: AutoTVM shows the smaller of that and the space, so the largest total."""
        return max(task.trials for task in self.tasks)

    @property
    def missing(self) -> tuple[int, ...]:
        """Numbers of tasks that the log does not have."""
        there = {task.number for task in self.tasks}
        return tuple(number for number in range(1, self.tasks_in_all + 1) if number not in there)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What the log says of tuning.

    `errors` counts failed candidates by AutoTVM's names (logged at level DEBUG only), `hopeless` are tasks that ended
    without a valid schedule as AutoTVM names them, `debug_switches` how often too many errors came in a row.
    """

    sessions: tuple[Progress, ...]
    errors: dict[str, int]
    hopeless: tuple[str, ...]
    debug_switches: int
    cut_short: int


def find_tuning(lines: Sequence[str]) -> Tuning:
    """All progress in the lines of a log. A task that begins again after a later one begins another session."""
    sessions: list[tuple[int, dict[int, TaskProgress]]] = []
    cut_short: set[int] = set()
    for number, line in enumerate(lines):
        found = [*_TASK.finditer(line)]
        if not found and _TASK_BEGUN.search(line):
            cut_short.add(number)
        for position, match in enumerate(found):
            end = found[position + 1].start() if position + 1 < len(found) else len(line)
            _add(sessions, int(match["tasks"]), _task(match, "Done" in line[match.end() : end]))
    return Tuning(
        sessions=tuple(Progress(tasks_in_all=tasks, tasks=tuple(last.values())) for tasks, last in sessions),
        errors=_errors(lines),
        hopeless=tuple(dict.fromkeys(text[:200] for line in lines for text in _NO_SCHEDULE.findall(line))),
        debug_switches=sum(_TOO_MANY_ERRORS in line for line in lines),
        cut_short=len(cut_short),
    )


def _add(sessions: list[tuple[int, dict[int, TaskProgress]]], tasks: int, task: TaskProgress) -> None:
    if not sessions or sessions[-1][0] != tasks or _begins_anew(sessions[-1][1], task):
        sessions.append((tasks, {}))
    last = sessions[-1][1]
    before = last.get(task.number)
    # "Done." stands on the last state; a later, emptier one would be the first state of the same task printed again.
    if before is None or task.tried >= before.tried:
        last[task.number] = task


def _begins_anew(last: dict[int, TaskProgress], task: TaskProgress) -> bool:
    before = last.get(task.number)
    if before is None:
        return False
    later = any(number > task.number for number in last)
    return later or (before.done and task.tried < before.tried)


def _task(match: re.Match[str], done: bool) -> TaskProgress:
    return TaskProgress(
        number=int(match["number"]),
        tried=int(match["tried"]),
        trials=int(match["trials"]),
        best_gflops=_number(match["best"]) * _GIGA[match["prefix"]],
        seconds=_number(match["seconds"]),
        done=done,
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # such as 1.2.3
        return 0.0


def _errors(lines: Sequence[str]) -> dict[str, int]:
    kinds = Counter(_ERROR_NAMES.get(kind, kind) for line in lines for kind in _ERROR.findall(line))
    del kinds["NO_ERROR"]
    return dict(kinds.most_common())
