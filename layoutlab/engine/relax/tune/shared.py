"""Which functions of other records a variant has as tuning tasks too."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from layoutlab.engine.base import SharedTask
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.records.files import read_set


def shared_tasks(tasks: Sequence[meta_schedule.ExtractedTask], folder: Path, others: Path) -> tuple[SharedTask, ...]:
    """The tasks whose function, compared as the database compares, is a workload of the records in `others`.

    `folder` has the variant's own records. Raises UsageError when one of the two is no record set.
    """
    index = meta_schedule.database.MemoryDatabase()
    own, theirs = (_numbers(index, path) for path in (folder, others))
    found = []
    for task in tasks:
        mod = task.dispatched[0]
        their_number = _number(index, theirs, mod)
        if their_number is not None:
            name = str(task.task_name)
            found.append(SharedTask(task=name, ours=_number(index, own, mod), theirs=their_number))
    return tuple(found)


_Numbers = list[meta_schedule.database.Workload]


def _numbers(index: meta_schedule.database.Database, folder: Path) -> _Numbers:
    """The workloads of a set, by their numbers, as `index` knows them."""
    return [index.commit_workload(mod) for mod in _modules(read_set(folder).workloads)]


def _modules(lines: Sequence[bytes]) -> Iterator[tvm.IRModule]:
    for line in lines:
        # TVM takes apart arrays of its own only.
        yield meta_schedule.database.Workload.from_json(tvm.runtime.convert(json.loads(line))).mod


def _number(index: meta_schedule.database.Database, workloads: _Numbers, mod: tvm.IRModule) -> int | None:
    if not index.has_workload(mod):
        return None
    wanted = index.commit_workload(mod)
    return next((number for number, workload in enumerate(workloads) if workload.same_as(wanted)), None)
