"""Records of the same functions, made while another model was tuned, taken into a variant's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layoutlab.engine.base import SharedTask
from layoutlab.errors import UsageError
from layoutlab.records.files import RecordSet, read_set
from layoutlab.records.identity import differences
from layoutlab.records.lines import Record
from layoutlab.records.replace import replace_together

# What may differ: a part of a model is another file.
_MODEL = "model_sha256"


@dataclass(frozen=True, kw_only=True)
class AdoptedTask:
    """One task before and after: how many records were new to it, and its best time in us, None where it has none."""

    task: str
    records: int
    before_us: float | None
    after_us: float | None


def adopted(
    ours: RecordSet, theirs: RecordSet, shared: Sequence[SharedTask]
) -> tuple[RecordSet, tuple[AdoptedTask, ...]]:
    """`ours` with the records that `theirs` has of the shared tasks; each record once.

    Raises UsageError when the two are not of the same device, target, versions, layouts and settings.
    """
    differ = [found.text("in ours", "in theirs") for found in differences(ours.identity, theirs.identity)]
    differ = [text for text in differ if not text.startswith(f"{_MODEL}:")]
    if differ:
        raise UsageError(f"records of different things are not put together: {'; '.join(differ)}")
    workloads, records, tasks = list(ours.workloads), {record.line(): record for record in ours.records}, []
    for task in shared:
        number = len(workloads) if task.ours is None else task.ours
        before_us = _best_us(records.values(), number)
        found = [replace(record, workload=number) for record in theirs.records if record.workload == task.theirs]
        new = {record.line(): record for record in found if record.line() not in records}
        if new and task.ours is None:
            workloads.append(theirs.workloads[task.theirs])
        records |= new
        after_us = _best_us(records.values(), number)
        tasks.append(AdoptedTask(task=task.task, records=len(new), before_us=before_us, after_us=after_us))
    return replace(ours, workloads=tuple(workloads), records=tuple(records.values())), tuple(tasks)


def adopt(folder: Path, others: Path, shared: Sequence[SharedTask], write: bool = True) -> tuple[AdoptedTask, ...]:
    """Put the records that `others` has of the shared tasks into `folder`, all or none; without `write` only say so."""
    changed, tasks = adopted(read_set(folder), read_set(others), shared)
    if write and any(task.records for task in tasks):
        replace_together(folder, changed.contents())
    return tasks


def _best_us(records: Iterable[Record], number: int) -> float | None:
    times = [record.seconds for record in records if record.workload == number and not record.failed]
    return min(times) * 1e6 if times else None
