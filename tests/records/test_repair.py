"""Torn and damaged records: what is whole is kept, what is not is kept beside and said."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutlab.progress import Progress
from layoutlab.records.change import pruned
from layoutlab.records.files import RecordSet, read_set
from layoutlab.records.repair import repair
from layoutlab.records.replace import finish_replacing, replace_together
from layoutlab.records.start import repair_and_say
from layoutlab.store import Store

from .conftest import TINY_CONV, unpack

SET = read_set(TINY_CONV)
FILES = SET.contents()


@settings(max_examples=60, deadline=None)
@given(
    workload_bytes=st.integers(0, len(FILES["workloads.jsonl"])),
    record_bytes=st.integers(0, len(FILES["records.jsonl"])),
)
def test_files_cut_at_any_byte_keep_every_whole_record(workload_bytes, record_bytes):
    with tempfile.TemporaryDirectory() as name:
        folder = unpack(SET, Path(name))
        cut = {
            "workloads.jsonl": FILES["workloads.jsonl"][:workload_bytes],
            "records.jsonl": FILES["records.jsonl"][:record_bytes],
        }
        for file, data in cut.items():
            (folder / file).write_bytes(data)
        workloads, records = (data.count(b"\n") for data in cut.values())
        seen = read_set(folder)  # as it is, before any repair
        done = repair(folder)
        found = read_set(folder)
        assert seen == found
        assert found.workloads == SET.workloads[:workloads]
        assert found.records == tuple(record for record in SET.records[:records] if record.workload < workloads)
        contents = found.contents()
        assert {file: (folder / file).read_bytes() for file in cut} == contents
        assert (done is None) == (cut == contents)
        torn = b"".join(path.read_bytes() for path in folder.glob("*.torn"))
        assert len(torn) == sum(map(len, cut.values())) - sum(map(len, contents.values()))
        assert done is None or (done.dropped_bytes, done.trials_left) == (len(torn), len(found.records))
        assert repair(folder) is None


def damage(folder: Path, name: str, change) -> None:
    lines = (folder / name).read_bytes().splitlines(keepends=True)
    (folder / name).write_bytes(b"".join(change(lines)))


def test_a_torn_record_is_said_and_kept_beside(tmp_path):
    folder = unpack(SET, tmp_path)
    damage(folder, "records.jsonl", lambda lines: [*lines[:-1], lines[-1][:312]])
    done = repair(folder)
    assert done.text() == "the last record was torn (312 bytes) and was dropped; 7 trials are left"
    assert len((folder / "records.jsonl.torn").read_bytes()) == 312
    damage(folder, "records.jsonl", lambda lines: [*lines, lines[0][:100]])
    repair(folder)
    assert len((folder / "records.jsonl.torn").read_bytes()) == 412


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        (
            "workloads.jsonl",
            lambda lines: [*lines[:-1], lines[-1][:50]],
            "the last workload was torn (50 bytes), 1 record had no workload ({homeless} bytes): all that was dropped; "
            "7 trials are left",
        ),
        (
            "workloads.jsonl",
            lambda lines: lines[:-1],
            "1 record had no workload ({homeless} bytes) and was dropped; 7 trials are left",
        ),
        (
            "records.jsonl",
            lambda lines: [lines[0], b"garbage\n", b'[0, "half"]\n', *lines[1:]],
            "2 records were damaged (20 bytes) and were dropped; 8 trials are left",
        ),
        (
            "records.jsonl",
            lambda lines: [b"\0" * 30],
            "the last record was torn (30 bytes) and was dropped; 0 trials are left",
        ),
    ],
    ids=["torn workload", "missing workload", "damage in the middle", "zeros"],
)
def test_what_is_said_of_other_damage(tmp_path, name, change, text):
    folder = unpack(SET, tmp_path)
    damage(folder, name, change)
    homeless = sum(len(record.line()) for record in SET.records if record.workload == 4)
    assert repair(folder).text() == text.format(homeless=homeless)


def test_a_damaged_workload_in_the_middle_costs_its_own_records_only(tmp_path):
    folder = unpack(pruned(SET), tmp_path)
    damage(folder, "workloads.jsonl", lambda lines: [lines[0], b"garbage\n", *lines[2:]])
    repair(folder)
    found = read_set(folder)
    assert found.workloads == (SET.workloads[0], *SET.workloads[2:])
    assert [record.workload for record in found.records] == [0, 1, 2, 3]
    assert [record.rest for record in found.records] == [
        record.rest for record in pruned(SET).records if record.workload != 1
    ]
    # Workload 3, of which three trials are counted only, is now workload 2.
    assert [(item.workload, item.trials) for item in found.dropped] == [(2, 3)]


def test_whole_files_are_not_touched(tmp_path):
    folder = unpack(SET, tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert repair(folder) is None
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert repair(tmp_path / "nothing") is None


def test_the_run_is_told(tmp_path, capsys):
    folder = unpack(SET, tmp_path / "nhwc-aaa")
    damage(folder, "records.jsonl", lambda lines: [*lines[:-1], lines[-1][:312]])
    with Store(tmp_path / "run") as store, Progress() as progress:
        repair_and_say(folder, "nhwc", store, progress)
        repair_and_say(folder, "nhwc", store, progress)
        told = store.all("repaired")
    text = "the last record was torn (312 bytes) and was dropped"
    assert capsys.readouterr().err == f"nhwc: {text}; 7 trials are left\n"
    assert told == [
        {
            "kind": "repaired",
            "variant": "nhwc",
            "what": text,
            "dropped_bytes": 312,
            "dropped_records": 1,
            "trials_left": 7,
        }
    ]


def test_files_that_change_together_do_so_or_not_at_all(tmp_path):
    """An interruption before the marker: nothing happened; after it: the rest is done."""
    old, new = {"a": b"1", "b": b"2"}, {"a": b"3", "b": b"4"}

    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    replace_together(tmp_path, old)
    for name, data in new.items():
        (tmp_path / f"{name}.next").write_bytes(data)
    finish_replacing(tmp_path)
    assert contents() == old

    (tmp_path / "a").write_bytes(b"3")  # renamed already
    (tmp_path / "b.next").write_bytes(b"4")
    (tmp_path / "replacing.json").write_text(json.dumps(["a", "b"]))
    finish_replacing(tmp_path)
    assert contents() == new


def test_a_set_is_what_its_files_say():
    assert isinstance(SET, RecordSet)
    assert [record.workload for record in SET.records] == [0, 1, 2, 3, 4, 3, 3, 3]
    assert (SET.trials, SET.failed) == (8, 0)
