"""Where a variant's records come from, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from layoutlab.errors import StageError, UsageError
from layoutlab.records.change import pruned
from layoutlab.records.files import read_set, write_set
from layoutlab.records.identity import about_bytes, differences, read_about, record_versions
from layoutlab.records.sources import claim, has_records, lend
from layoutlab.records.start import find_records

from ..conftest import ROOT
from .conftest import unpack


def test_versions_of_other_packages_do_not_change_what_a_record_means():
    versions = {
        "layoutlab": "0.1.0",
        "apache-tvm": "0.27",
        "apache-tvm-ffi": "0.1.14",
        "ai-edge-litert": "2.3.0",
        "numpy": "2.4.6",
        "core: qemu-user": "1:7.2+dfsg-7+deb12u18",
        "core: llvm": "1:14.0-55.7~deb12u1",
        "core: model": "kryo-8ea6f8cf574f, penalty 33",
    }
    assert record_versions(versions) == {
        "apache-tvm": "0.27",
        "apache-tvm-ffi": "0.1.14",
        "core: llvm": "14.0",
        "core: model": "kryo-8ea6f8cf574f, penalty 33",
    }


def test_what_belongs_to_the_same_has_the_same_key(tiny_conv, tmp_path):
    (tmp_path / "about.json").write_bytes(about_bytes(tiny_conv.identity))
    found = read_about(tmp_path)
    assert differences(tiny_conv.identity, found) == ()
    assert found.key() == tiny_conv.identity.key()
    other = replace(found, model_sha256="0" * 64)
    assert other.key() != found.key()
    assert [difference.field for difference in differences(found, other)] == ["model_sha256"]


def test_only_fusion_and_passes_that_are_not_the_usual_ones_change_what_records_belong_to(tiny_conv, tmp_path):
    unfused = replace(tiny_conv.identity, fuse=False, passes={"disabled": ["FoldConstant"]})
    assert b"fuse" not in about_bytes(tiny_conv.identity)
    assert unfused.key() != tiny_conv.identity.key()
    (tmp_path / "about.json").write_bytes(about_bytes(unfused))
    assert read_about(tmp_path) == unfused
    assert [difference.field for difference in differences(tiny_conv.identity, unfused)] == ["fuse", "passes.disabled"]


@pytest.mark.parametrize("about", sorted((ROOT / "experiments" / "records").glob("*/*/about.json")), ids=str)
def test_shipped_sets_belong_to_what_they_belonged_to(about):
    assert about_bytes(read_about(about.parent)) == about.read_bytes()


def test_records_of_something_else_are_refused_with_every_difference(tiny_conv, tmp_path):
    folder = unpack(tiny_conv, tmp_path / "nhwc-aaa")
    claim(folder, tiny_conv.identity)
    tuned = replace(tiny_conv.identity, convert_layout="NCHW", hook={"hook": "nchwc", "block": 8})
    with pytest.raises(StageError) as caught:
        claim(folder, tuned)
    advice = (
        f"To start afresh, remove {folder}. To use these records only for what has none of its own, move them to "
        "another folder first, and lend them to the run: --borrow FOLDER"
    )
    assert str(caught.value) == (
        f"records: the records in {folder} do not belong to this variant: "
        "convert_layout: NCHW is tuned, nothing is in the records; "
        "hook.hook: nchwc is tuned, keep is in the records; "
        f"hook.block: 8 is tuned, nothing is in the records. {advice}"
    )
    (folder / "about.json").unlink()
    with pytest.raises(StageError) as caught:
        claim(folder, tuned)
    assert str(caught.value) == (
        f"records: {folder} holds records, but no about.json that says what they belong to. {advice}"
    )
    for name in ("records.jsonl", "workloads.jsonl"):
        (folder / name).unlink()
    claim(folder, tuned)
    assert read_about(folder) == tuned


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"format": 2}', "{path} has format 2, and this layoutlab reads format 1: use the version that wrote it"),
        (b'{"format": 1, "device": "x"}', "{path} is damaged at simulated, target, "),
        (b"[]", "{path} cannot be read ("),
        (b'{"form', "{path} cannot be read ("),
    ],
)
def test_an_unreadable_about_is_named(tmp_path, content, message):
    (tmp_path / "about.json").write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_about(tmp_path)
    assert str(caught.value).startswith(message.format(path=tmp_path / "about.json"))


@pytest.fixture
def places(tiny_conv, tmp_path, monkeypatch) -> dict[str, Path]:
    """A new variant's folder, other runs, and shipped sets: the one that belongs, and one of another device."""
    monkeypatch.chdir(tmp_path)
    write_set(Path("records/x/right"), pruned(tiny_conv))
    write_set(Path("records/x/other"), replace(tiny_conv, identity=replace(tiny_conv.identity, device="another")))
    folder = tmp_path / "runs" / "x" / f"nhwc-{tiny_conv.identity.key()}"
    folder.mkdir(parents=True)
    return {"folder": folder, "runs": tmp_path / "runs", "shipped": Path("records")}


def test_shipped_records_that_belong_are_taken_over_once(tiny_conv, places):
    found = find_records(identity=tiny_conv.identity, fresh=False, **places)
    assert found.origin == {"kind": "shipped", "source": "records/x/right"}
    assert (found.taken_over, found.news) == (True, "goes on from shipped records in records/x/right")
    assert read_set(places["folder"]) == pruned(tiny_conv)
    again = find_records(identity=tiny_conv.identity, fresh=False, **places)
    assert (again.origin, again.taken_over, again.news) == (found.origin, False, None)


def test_a_shipped_set_that_cannot_be_read_costs_the_variant(tiny_conv, places):
    Path("records/x/other/about.json").write_bytes(b"{")
    with pytest.raises(StageError, match=r"^records: records/x/other/about.json cannot be read \("):
        find_records(identity=tiny_conv.identity, fresh=False, **places)


def test_records_of_another_run_come_before_shipped_ones(tiny_conv, places):
    other = unpack(tiny_conv, places["runs"] / "y" / f"plain-{tiny_conv.identity.key()}")
    found = find_records(identity=tiny_conv.identity, fresh=False, **places)
    assert found.origin == {"kind": "run", "source": f"runs/y/{other.name}"}
    assert found.news == f"goes on from the same variant's records in {other}"
    assert read_set(places["folder"]) == tiny_conv


def test_another_runs_records_that_were_put_there_from_elsewhere_are_left_alone(tiny_conv, places):
    foreign = replace(tiny_conv, identity=replace(tiny_conv.identity, device="another"))
    unpack(foreign, places["runs"] / "y" / f"plain-{tiny_conv.identity.key()}")
    found = find_records(identity=tiny_conv.identity, fresh=False, **places)
    assert found.origin == {"kind": "shipped", "source": "records/x/right"}


def test_fresh_takes_nothing_over_and_sets_aside_what_was(tiny_conv, places):
    unpack(tiny_conv, places["runs"] / "y" / f"plain-{tiny_conv.identity.key()}")
    found = find_records(identity=tiny_conv.identity, fresh=True, **places)
    assert (found.origin, found.news) == (None, None)
    assert not has_records(places["folder"])

    find_records(identity=tiny_conv.identity, fresh=False, **places)
    found = find_records(identity=tiny_conv.identity, fresh=True, **places)
    aside = places["folder"] / "set-aside"
    key = tiny_conv.identity.key()
    assert found.news == f"records from runs/y/plain-{key} are set aside in runs/x/nhwc-{key}/set-aside"
    assert not has_records(places["folder"])
    assert (aside / "records.jsonl").read_bytes() == tiny_conv.contents()["records.jsonl"]

    unpack(tiny_conv, places["folder"])  # its own now, made after that
    find_records(identity=tiny_conv.identity, fresh=True, **places)
    assert read_set(places["folder"]) == tiny_conv


def test_lent_sets_are_copied_with_their_best_records(tiny_conv, tmp_path, places):
    lent = lend([Path("records")], tmp_path / "borrowed")
    assert [loan.source for loan in lent] == ["records/x/other", "records/x/right"]
    assert (lent[0].folder / "records.jsonl").read_bytes() == pruned(tiny_conv).contents()["records.jsonl"]
    assert lent[0].note(tiny_conv.identity)["differences"] == [
        {"field": "device", "ours": tiny_conv.identity.device, "theirs": "another"}
    ]
    with pytest.raises(UsageError) as caught:
        lend([Path("runs/x")], tmp_path / "borrowed")
    assert str(caught.value) == (
        "--borrow runs/x: no records there; expected a folder with about.json, workloads.jsonl and records.jsonl, or "
        "one of such folders. layoutlab records export makes them of a run's records"
    )
