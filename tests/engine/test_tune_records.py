"""Records that are pruned, torn or lent, as TVM meets them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from layoutlab.engine.base import BorrowedRecords
from layoutlab.engine.relax.build import apply_records
from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.lower import lower
from layoutlab.engine.relax.tune.borrow import borrow
from layoutlab.engine.relax.tune.coverage import coverage
from layoutlab.engine.relax.tune.records import open_database
from layoutlab.engine.relax.tune.tuner import extract_tasks
from layoutlab.errors import StageError
from layoutlab.records.change import pruned
from layoutlab.records.files import RecordSet, read_set
from layoutlab.records.repair import repair

from ..conftest import TINY
from ..records.conftest import SECONDS, TINY_CONV, unpack, with_failures
from .test_tune import TARGET, run


@pytest.fixture(scope="module")
def lowered():
    mod = canonicalise(import_model((TINY / "tiny_conv.tflite").read_bytes()))
    return lower(mod, TARGET, pack_weights=True)


@pytest.fixture(scope="module")
def tasks(lowered):
    return extract_tasks(lowered, TARGET)


@pytest.fixture(scope="module")
def tuned(tasks, tmp_path_factory) -> RecordSet:
    """A finished tuning of eight trials, one of them made a failed one."""
    folder = tmp_path_factory.mktemp("tuned")
    run(tasks, folder, 8)
    shutil.copy(TINY_CONV / "about.json", folder)
    found = read_set(folder)
    often = max(range(5), key=lambda number: sum(record.workload == number for record in found.records))
    last = max(number for number, record in enumerate(found.records) if record.workload == often)
    return with_failures(found, last)


def test_a_pruned_set_leaves_nothing_to_spend_and_covers_the_same(tasks, tuned, tmp_path):
    whole = coverage(open_database(unpack(tuned, tmp_path / "whole")), tasks)
    folder = unpack(pruned(tuned), tmp_path / "pruned")
    events, found = run(tasks, folder, 8)
    assert [(event["done"], event["failed"], event["tuned"]) for event in events] == [(8, 1, 5)]
    assert found == whole

    # A larger budget goes on from there.
    events, found = run(tasks, folder, 9)
    assert (events[0]["done"], events[-1]["done"]) == (8, 9)
    assert sum(task.trials for task in found) == 9


def test_torn_files_open(tasks, tuned, tmp_path):
    contents = tuned.contents()
    for workloads, records in ((-1, -1), (-40, -400), (1, 1), (len(contents["workloads.jsonl"]) // 2, -1)):
        folder = unpack(tuned, tmp_path / f"cut{workloads}{records}")
        (folder / "workloads.jsonl").write_bytes(contents["workloads.jsonl"][:workloads])
        (folder / "records.jsonl").write_bytes(contents["records.jsonl"][:records])
        kept = repair(folder).trials_left
        assert len(open_database(folder).get_all_tuning_records()) == kept == len(read_set(folder).records)


def lent(folder: Path, records: RecordSet, source: str = "elsewhere") -> BorrowedRecords:
    return BorrowedRecords(source=source, folder=str(unpack(pruned(records), folder)))


def test_only_tasks_without_a_valid_record_borrow(lowered, tasks, tuned, tmp_path):
    """Own records win although the lent ones claim to be faster; the first lender that has a record is taken."""
    first = next(record for record in tuned.records if record.workload == 0)
    few = replace(tuned, records=(first, *(record for record in tuned.records if record.workload == 3)))
    own = open_database(unpack(with_failures(few, 0), tmp_path / "own"))  # workload 0 was tried, and failed
    fast = replace(tuned, records=tuple(faster(record) for record in pruned(tuned).records if record.workload != 2))
    sources = [lent(tmp_path / "fast", fast, "fast"), lent(tmp_path / "all", tuned, "all")]
    covered = coverage(own, tasks)
    database, marked = borrow(own, sources, tasks, covered, TARGET)
    lenders = {task.name: task.borrowed for task in marked}
    assert sorted(lenders.values(), key=str) == [None, "all", "fast", "fast", "fast"]
    assert [replace(task, borrowed=None) for task in marked] == covered  # what is borrowed is no trial

    (mine,) = (task for task, found in zip(tasks, marked, strict=True) if found.borrowed is None)
    record = database.query_tuning_record(mine.dispatched[0], TARGET, "")
    assert float(record.run_secs[0]) == pytest.approx(min(r.seconds for r in tuned.records if r.workload == 3))
    expected = [task.name for task in marked]
    apply_records(lowered, TARGET, database, pack_weights=True, expected=expected)
    with pytest.raises(StageError, match="4 of 5 tasks with a schedule did not take it"):
        apply_records(lowered, TARGET, own, pack_weights=True, expected=expected)


def faster(record):
    return replace(record, rest=SECONDS.sub(b"],[1e-12],{", record.rest))


def test_without_a_lender_nothing_changes(tasks, tuned, tmp_path):
    own = open_database(unpack(tuned, tmp_path))
    covered = coverage(own, tasks)
    assert borrow(own, (), tasks, covered, TARGET) == (own, covered)


def test_a_set_this_tvm_cannot_read_is_named(tasks, tuned, tmp_path):
    broken = replace(tuned, workloads=(b'["1","bm90IGEgbW9kdWxl"]\n', *tuned.workloads[1:]))
    own = open_database(tmp_path / "own")
    with pytest.raises(StageError, match=r"^build: the records borrowed from elsewhere cannot be read by this TVM: "):
        borrow(own, [lent(tmp_path / "lent", broken)], tasks, coverage(own, tasks), TARGET)
