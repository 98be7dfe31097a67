"""Records of other devices, models or versions, for the tasks that have no valid record of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from layoutlab.engine.base import BorrowedRecords, TaskCoverage
from layoutlab.engine.relax.tune.records import open_lent
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.errors import StageError


def borrow(
    own: meta_schedule.database.Database,
    sources: Sequence[BorrowedRecords],
    tasks: Sequence[meta_schedule.ExtractedTask],
    covered: Sequence[TaskCoverage],
    target: tvm.target.Target,
) -> tuple[meta_schedule.database.Database, list[TaskCoverage]]:
    """The database to build with, and the coverage with what each task borrowed.

    Own records win whatever the others' times are, for these were measured elsewhere; then the first source that has
    a valid record. Raises StageError("build") when a source cannot be read by this TVM.
    """
    if not sources:
        return own, list(covered)
    lent = [(source, _open(source)) for source in sources]
    marked = [
        task if task.best_us is not None else replace(task, borrowed=_lender(lent, extracted, target))
        for extracted, task in zip(tasks, covered, strict=True)
    ]
    return meta_schedule.database.OrderedUnionDatabase(own, *(database for _, database in lent)), marked


def _open(source: BorrowedRecords) -> meta_schedule.database.Database:
    try:
        return open_lent(Path(source.folder))
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0][:200]
        raise StageError(
            "build", f"the records borrowed from {source.source} cannot be read by this TVM: {said}"
        ) from error


def _lender(
    lent: Sequence[tuple[BorrowedRecords, meta_schedule.database.Database]],
    task: meta_schedule.ExtractedTask,
    target: tvm.target.Target,
) -> str | None:
    for source, database in lent:
        if database.query_tuning_record(task.dispatched[0], target, str(task.task_name)) is not None:
            return source.source
    return None
