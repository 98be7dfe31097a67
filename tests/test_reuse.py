"""Records of the same variant are taken over from another spec's run, and from no other variant."""

from __future__ import annotations

from pathlib import Path

from layoutlab.reuse import take_over_records


def variant(runs: Path, name: str, records: str | None = None, workloads: str | None = "w\n") -> Path:
    folder = runs / name
    folder.mkdir(parents=True)
    if workloads is not None:
        (folder / "workloads.jsonl").write_text(workloads)
    if records is not None:
        (folder / "records.jsonl").write_text(records)
    return folder


def test_the_longest_records_with_the_same_key_are_copied(tmp_path):
    variant(tmp_path, "one/nhwc-aaa", "1\n")
    longest = variant(tmp_path, "two/plain-aaa", "1\n2\n", workloads="v\n")
    folder = variant(tmp_path, "three/nhwc-aaa", workloads=None)
    assert take_over_records(folder, tmp_path) == longest
    assert (folder / "records.jsonl").read_text() == "1\n2\n"
    assert (folder / "workloads.jsonl").read_text() == "v\n"
    assert sorted(path.name for path in folder.iterdir()) == ["origin.json", "records.jsonl", "workloads.jsonl"]


def test_the_reasons_of_failed_candidates_come_along(tmp_path):
    source = variant(tmp_path, "one/nhwc-aaa", "1\n")
    (source / "failures.jsonl").write_text("f\n")
    folder = variant(tmp_path, "two/nhwc-aaa", workloads=None)
    assert take_over_records(folder, tmp_path) == source
    assert (folder / "failures.jsonl").read_text() == "f\n"


def test_records_of_its_own_stay_as_they_are(tmp_path):
    variant(tmp_path, "one/nhwc-aaa", "1\n2\n")
    folder = variant(tmp_path, "two/nhwc-aaa", "1\n")
    assert take_over_records(folder, tmp_path) is None
    assert (folder / "records.jsonl").read_text() == "1\n"


def test_another_key_or_half_a_database_is_left_alone(tmp_path):
    variant(tmp_path, "one/nhwc-bbb", "1\n")
    variant(tmp_path, "two/nhwc-aaa", "1\n", workloads=None)
    variant(tmp_path, "three/nhwc-aaa", None)
    folder = variant(tmp_path, "four/nhwc-aaa", workloads=None)
    assert take_over_records(folder, tmp_path) is None
    assert not any(folder.iterdir())
