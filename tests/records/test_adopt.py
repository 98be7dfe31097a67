"""Records of the same functions, taken over from the tuning of another model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layoutlab.engine.base import SharedTask
from layoutlab.errors import UsageError
from layoutlab.records.adopt import AdoptedTask, adopt, adopted
from layoutlab.records.files import read_set

from .conftest import unpack, with_failures

# Of tiny_conv: workload 3 has four records, the others one each.
CONV = SharedTask(task="conv", ours=None, theirs=3)


def without(records, *numbers):
    """The set without the records of some workloads."""
    return replace(records, records=tuple(record for record in records.records if record.workload not in numbers))


def best_us(records, number: int) -> float:
    return 1e6 * min(r.seconds for r in records.records if r.workload == number and not r.failed)


def part(records):
    """As of a part of the model: another file, and one workload alone."""
    chosen = tuple(replace(record, workload=0) for record in records.records if record.workload == 3)
    identity = replace(records.identity, model_sha256="0" * 64)
    return replace(records, identity=identity, workloads=records.workloads[3:4], records=chosen)


def test_records_go_to_the_workload_that_is_there(tiny_conv):
    changed, (task,) = adopted(without(tiny_conv, 3), part(tiny_conv), [replace(CONV, ours=3, theirs=0)])
    assert sorted(record.line() for record in changed.records) == sorted(record.line() for record in tiny_conv.records)
    assert changed.workloads == tiny_conv.workloads
    assert task == AdoptedTask(task="conv", records=4, before_us=None, after_us=best_us(tiny_conv, 3))


def test_a_workload_that_is_not_there_yet_is_added(tiny_conv):
    fewer = replace(without(tiny_conv, 3, 4), workloads=tiny_conv.workloads[:3])
    changed, _ = adopted(fewer, part(tiny_conv), [replace(CONV, theirs=0)])
    assert changed.workloads == tiny_conv.workloads[:4]
    assert [record.workload for record in changed.records].count(3) == 4


def test_what_is_there_is_not_taken_again_and_other_functions_not_at_all(tiny_conv):
    shared = [replace(CONV, ours=3)]
    changed, (task,) = adopted(tiny_conv, tiny_conv, shared)
    assert changed == tiny_conv
    assert (task.records, task.before_us) == (0, task.after_us)
    assert len(adopted(without(tiny_conv, 0, 3), tiny_conv, shared)[0].records) == 7


def test_failed_trials_count_and_give_no_time(tiny_conv):
    failed = with_failures(tiny_conv, *(n for n, record in enumerate(tiny_conv.records) if record.workload == 3))
    _, (task,) = adopted(without(tiny_conv, 3), failed, [replace(CONV, ours=3)])
    assert task == AdoptedTask(task="conv", records=4, before_us=None, after_us=None)


def test_files_are_changed_only_on_request(tiny_conv, tmp_path):
    ours, theirs = unpack(without(tiny_conv, 3), tmp_path / "ours"), unpack(part(tiny_conv), tmp_path / "theirs")
    shared = [replace(CONV, ours=3, theirs=0)]
    said = adopt(ours, theirs, shared, write=False)
    assert read_set(ours) == without(tiny_conv, 3)
    assert adopt(ours, theirs, shared) == said
    assert read_set(ours).trials == tiny_conv.trials


def test_records_of_another_target_are_refused(tiny_conv):
    theirs = replace(tiny_conv, identity=replace(tiny_conv.identity, device="another"))
    with pytest.raises(UsageError) as error:
        adopted(tiny_conv, theirs, [CONV])
    assert str(error.value) == (
        f"records of different things are not put together: device: {tiny_conv.identity.device} in ours, another in "
        "theirs"
    )
