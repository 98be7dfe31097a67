"""The record of a run survives what happens to files."""

from __future__ import annotations

import subprocess
import sys

import pytest

from layoutlab.errors import StoreError
from layoutlab.store import Store, read_events


def fill(folder, *kinds: str) -> None:
    with Store(folder) as store:
        for number, kind in enumerate(kinds):
            store.append(kind, number=number)


def kinds(folder) -> list[str]:
    with Store(folder) as store:
        return [event["kind"] for event in store.events]


def test_events_are_there_again_in_order(tmp_path):
    fill(tmp_path / "a", "one", "two")
    fill(tmp_path / "a", "three")
    assert kinds(tmp_path / "a") == ["format", "one", "two", "three"]


def test_find_is_the_last_and_all_are_in_order(tmp_path):
    with Store(tmp_path) as store:
        for value in (1, 2, 3):
            store.append("x", row="a" if value < 3 else "b", value=value)
        assert store.find("x", row="a")["value"] == 2
        assert [event["value"] for event in store.all("x", row="a")] == [1, 2]
        assert store.find("x", row="c") is None
        assert store.find("y") is None


def test_a_torn_last_line_is_cut_at_every_byte(tmp_path):
    fill(tmp_path, "one", "two")
    path = tmp_path / "events.jsonl"
    whole = path.read_bytes()
    last = whole[:-1].rfind(b"\n") + 1
    for end in range(last + 1, len(whole)):
        path.write_bytes(whole[:end])
        assert kinds(tmp_path) == ["format", "one"]
        assert path.read_bytes() == whole[:last]
    fill(tmp_path, "three")
    assert kinds(tmp_path) == ["format", "one", "three"]


def test_damage_in_the_middle_is_named_with_its_line(tmp_path):
    fill(tmp_path, "one", "two")
    path = tmp_path / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + "{broken\n" + lines[2])
    with pytest.raises(StoreError) as caught:
        kinds(tmp_path)
    assert str(caught.value) == (
        f"{path}:2 is not JSON: the record was changed by hand or damaged. "
        "Restore it, or remove the folder to start this spec afresh"
    )


def test_a_newer_format_is_refused(tmp_path):
    (tmp_path / "events.jsonl").write_text('{"kind":"format","version":99}\n')
    with pytest.raises(StoreError, match="has format 99, and this layoutlab reads format 1"):
        kinds(tmp_path)


def test_two_runs_at_once_are_refused_with_the_owner(tmp_path):
    with Store(tmp_path):
        code = (
            f"from pathlib import Path\nfrom layoutlab.store import Store\nStore(Path({str(tmp_path)!r})).__enter__()"
        )
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "another run is using" in other.stderr
        assert "wait for it to end, or end it" in other.stderr
    assert kinds(tmp_path) == ["format"]


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(StoreError, match=r"cannot write to .*: Not a directory"):
        fill(tmp_path / "runs" / "x", "one")


def test_a_check_after_the_last_run_is_no_part_of_it(tmp_path):
    with Store(tmp_path) as store:
        for kind in ("run", "finished", "aa", "uses"):
            store.append(kind)
        assert [event["kind"] for event in store.last_run()] == ["run", "finished"]


def test_a_file_that_is_being_written_is_read_as_far_as_it_is_whole_and_left_as_it_is(tmp_path):
    fill(tmp_path, "one")
    path = tmp_path / "events.jsonl"
    path.write_text(path.read_text() + '{"kind": "tw')
    before = path.read_bytes()
    assert [event["kind"] for event in read_events(path)] == ["format", "one"]
    assert path.read_bytes() == before
    assert read_events(tmp_path / "absent.jsonl") == []


def test_a_listener_is_told_each_new_event(tmp_path):
    told: list[dict] = []
    fill(tmp_path, "one")
    with Store(tmp_path, told.append) as store:
        store.append("two", number=2)
    assert told == [{"kind": "two", "number": 2}]
