"""Links that lead out of the results: refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutlab.errors import StoreError
from layoutlab.report.files import write_texts
from layoutlab.store import Store


@pytest.fixture
def elsewhere(tmp_path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "file").write_text("keep")
    return folder


def refusal(path: Path, target: Path, results: Path) -> str:
    return (
        f"{path} is a symbolic link to {target}, outside of {results}: nothing is written there. "
        "Remove the link, or name the folder with --results"
    )


@pytest.mark.parametrize("link", ["runs", "runs/x", "runs/x/logs", "runs/x/events.jsonl", "runs/x/lock"])
def test_a_run_does_not_write_through_a_link(tmp_path, elsewhere, link):
    results = tmp_path / "results"
    path = results / link
    path.parent.mkdir(parents=True)
    target = elsewhere / "file" if path.suffix or path.name == "lock" else elsewhere
    path.symlink_to(target)
    with pytest.raises(StoreError) as caught, Store(results / "runs" / "x"):
        pass
    assert str(caught.value) == refusal(path, target, results)
    assert [entry.name for entry in elsewhere.iterdir()] == ["file"]
    assert (elsewhere / "file").read_text() == "keep"


def test_a_table_is_not_written_through_a_link(tmp_path, elsewhere):
    results = tmp_path / "results"
    results.mkdir()
    (results / "x").symlink_to(elsewhere)
    with pytest.raises(StoreError) as caught:
        write_texts({"table.md": "new"}, results / "x")
    assert str(caught.value) == refusal(results / "x", elsewhere, results)
    assert [entry.name for entry in elsewhere.iterdir()] == ["file"]


def test_links_within_the_results_and_the_results_themselves_may_be_links(tmp_path, elsewhere):
    results = tmp_path / "results"
    results.symlink_to(elsewhere)
    (elsewhere / "runs" / "x").mkdir(parents=True)
    (elsewhere / "runs" / "x" / "old").symlink_to(elsewhere / "file")
    with Store(results / "runs" / "x") as store:
        store.append("kept")
    write_texts({"table.md": "new"}, results / "x")
    assert (elsewhere / "x" / "table.md").read_text() == "new"
