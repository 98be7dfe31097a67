"""Records of the same functions, from the whole model's variants to those of the operators alone, and back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from layoutlab.begin import Run
from layoutlab.compiling import VariantRecords, do_job, find_variant_records, variant_job
from layoutlab.engine.base import SharedTask, from_json, to_json
from layoutlab.errors import StoreError
from layoutlab.records.adopt import AdoptedTask, adopt
from layoutlab.records.sources import has_records
from layoutlab.spec.models import VariantSpec
from layoutlab.spent import begin_tuning, end_adopting
from layoutlab.store import Store


def adopt_records(
    run: Run, variant: VariantSpec, others: Path, heading: str, write: bool = True
) -> tuple[AdoptedTask, ...]:
    """Take into a variant's records what the records in `others` have of the same functions, as additional trials.

    Without `write` it is only said what that would be. Raises StageError when the variant cannot be laid out
    and lowered, and LayoutlabError when the records of one of the two cannot be used.
    """
    records = find_variant_records(run, variant, heading)
    job = variant_job(run, variant, records)
    if not has_records(others):
        return ()
    found = do_job(run, variant, heading, "find_shared", job=to_json(job), others=str(others.resolve()))
    shared = [from_json(SharedTask, task) for task in found]
    return _adopt(run, variant, records, others, shared, write)


def _adopt(
    run: Run, variant: VariantSpec, records: VariantRecords, others: Path, shared: Sequence[SharedTask], write: bool
) -> tuple[AdoptedTask, ...]:
    tasks = adopt(records.folder, others, shared, write=False)
    new = {task.task: task.records for task in tasks if task.records}
    if not write or not new:
        return tasks
    begin_tuning(run.store, variant.name, records.key, records.folder, additional=True)
    try:
        adopt(records.folder, others, shared)
    except OSError as error:
        raise StoreError(f"cannot write to {records.folder}: {error.strerror}") from error
    end_adopting(run.store, variant.name, records.key, new)
    return tasks


def records_folder(store: Store, variant: str) -> Path | None:
    """Where the records of a variant are that the last run built with; None when it used none."""
    uses = [event for event in store.last_run() if event["kind"] == "uses" and event["variant"] == variant]
    return store.folder / str(uses[-1]["folder"]) if uses else None
