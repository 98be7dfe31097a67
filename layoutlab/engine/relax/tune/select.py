"""Choosing tuning tasks by text: an index, a range of them, a kind, a name or a part of one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from layoutlab.errors import UsageError
from layoutlab.spec.words import did_you_mean, quoted

_NUMBERS = re.compile(r"([0-9]+)(?:-([0-9]+))?")
# A network has some fifty tasks: more of them in one message help nobody.
_SHOWN = 12


@dataclass(frozen=True, kw_only=True)
class Choosable:
    """What a task can be chosen by, besides its index."""

    name: str
    kind: str


def select(text: str, tasks: Sequence[Choosable]) -> tuple[int, ...]:
    """Indices, ascending, of the tasks that a comma-separated text names.

    A part of the text is an index (`3`), a range with both ends (`7-9`), a kind (`conv2d`), a task's name, or a part
    of the name of one task only. Raises UsageError for a part that names no task, or that several names contain.
    """
    parts = [part.strip() for part in text.split(",")]
    return tuple(sorted({index for part in parts for index in _matches(part, tasks)}))


def skip(texts: Sequence[str], tasks: Sequence[Choosable], kinds: Sequence[str]) -> tuple[int, ...]:
    """Indices of the tasks that any of `texts` names.

    Unlike in `select` one of the `kinds` there are may have no task: a spec's variants have different ones.
    """
    present = {task.kind for task in tasks}
    parts = [part.strip() for text in texts for part in text.split(",")]
    named = [part for part in parts if part in present or part not in kinds]
    return select(",".join(named), tasks) if named else ()


def _matches(part: str, tasks: Sequence[Choosable]) -> Sequence[int]:
    if numbers := _NUMBERS.fullmatch(part):
        return _range(part, int(numbers[1]), int(numbers[2] or numbers[1]), len(tasks))
    for found in (
        [index for index, task in enumerate(tasks) if task.kind == part],
        [index for index, task in enumerate(tasks) if task.name == part],
    ):
        if found:
            return found
    found = [index for index, task in enumerate(tasks) if part and part in task.name]
    if len(found) == 1:
        return found
    if found:
        raise UsageError(
            f"{quoted(part)} is a part of {len(found)} names: {_some([_shown(index, tasks) for index in found])}. "
            "Say more of the name, or use an index"
        )
    raise UsageError(_nothing(part, tasks))


def _range(part: str, first: int, last: int, count: int) -> range:
    if first > last:
        raise UsageError(f"{quoted(part)} is no range of tasks: expected the smaller index first")
    if last >= count:
        has = f"tasks 0 to {count - 1}" if count else "no tasks"
        raise UsageError(f"{quoted(part)} names task {last}, and the variant has {has}")
    return range(first, last + 1)


def _nothing(part: str, tasks: Sequence[Choosable]) -> str:
    kinds = list(dict.fromkeys(task.kind for task in tasks))
    hint = did_you_mean(part, [*kinds, *(task.name for task in tasks)])
    every = _some([_shown(index, tasks) for index in range(len(tasks))])
    return f"{quoted(part)} names no task{hint or ':'} There are the kinds {', '.join(kinds)} and the tasks {every}"


def _shown(index: int, tasks: Sequence[Choosable]) -> str:
    return f"{index} {tasks[index].name}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
