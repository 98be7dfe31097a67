"""A disk that gets full, or cannot be written: one clear error, and what was there is whole."""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from layoutlab.errors import StoreError
from layoutlab.model import build
from layoutlab.report.files import write_texts
from layoutlab.store import Store

from .runs import LAYOUTLAB, TUNED, UNTUNED, counted, events, layoutlab, rows, tables, trials, write

# A shell with mounts of its own: they end with it.
OWN_MOUNTS = ["unshare", "--mount", "sh", "-c"]


@pytest.fixture
def mounts() -> None:
    """For tests that mount something."""
    done = subprocess.run([*OWN_MOUNTS, "mount -t tmpfs none /mnt"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"file systems cannot be mounted here: {done.stderr.strip()}")


@contextlib.contextmanager
def files_up_to(size_bytes: int) -> Iterator[None]:
    """No file of this process gets larger than so much."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_an_event_is_written_whole_or_not_at_all(tmp_path):
    """The system takes the part of a line for which there is room, and only then refuses."""
    with Store(tmp_path) as store:
        store.append("one")
        kept = (tmp_path / "events.jsonl").read_bytes()
        with files_up_to(len(kept) + 10), pytest.raises(StoreError) as caught:
            store.append("two", what="x" * 100)
        assert str(caught.value).startswith(f"cannot write to {tmp_path}: File too large. To go on, make room there")
        assert (tmp_path / "events.jsonl").read_bytes() == kept
        store.append("three")
    with Store(tmp_path) as store:
        assert [event["kind"] for event in store.events] == ["format", "one", "three"]


def test_what_a_full_disk_does_to_other_files_of_a_run_is_told_as_well(tmp_path):
    with (
        pytest.raises(StoreError) as caught,
        Store(tmp_path) as store,
        files_up_to(10_000),
        open(store.folder / "inputs.npz", "wb") as file,
    ):
        file.write(bytes(20_000))
        file.flush()
    assert str(caught.value).startswith(f"cannot write to {tmp_path}: File too large. To go on, make room there")


def test_a_table_is_the_old_one_or_the_new_one(tmp_path):
    old = {"table.md": "old\n", "table.csv": "old\n"}
    write_texts(old, tmp_path)
    # What a process that was killed long ago had begun, and what another one writes just now.
    abandoned, fresh = tmp_path / ".table.md-abandoned", tmp_path / ".table.csv-fresh"
    abandoned.write_text("half")
    os.utime(abandoned, (0, 0))
    fresh.write_text("half")
    with files_up_to(1000), pytest.raises(StoreError, match=r"cannot write to .*: File too large"):
        write_texts({"table.md": "new\n" * 1000, "table.csv": "new\n"}, tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {**old, fresh.name: "half"}


def test_half_a_model_is_never_left_where_a_built_one_is_looked_for(tmp_path, monkeypatch):
    """Writing is what is tried here, not the networks."""
    monkeypatch.setattr(build, "build", lambda name, seed: bytes(20_000))
    name = next(iter(build.BUILDERS))
    with files_up_to(10_000), pytest.raises(OSError, match="File too large"):
        build.main([name, "-o", str(tmp_path)])
    assert not (tmp_path / build.file_name(name)).exists()
    assert build.main([name, "-o", str(tmp_path)]) == 0
    assert (tmp_path / build.file_name(name)).stat().st_size == 20_000


def test_a_disk_that_gets_full_leaves_the_old_tables_and_with_more_room_there_are_new_ones(finished, mounts):
    shown, done_before = tables(finished), counted(finished)
    used_kib = sum(path.stat().st_blocks for path in (finished / "results").rglob("*")) // 2
    (finished / "results").rename(finished / "kept")
    for name in ("results", "seen", "end"):
        (finished / name).mkdir()
    run = f"{shlex.join(LAYOUTLAB)} run x.yaml"
    # There is room for some files of the table, and not for all.
    script = (
        f"mount -t tmpfs -o size={used_kib + 40}k none results && cp -a kept/. results/ || exit 99; "
        f"{run} 2> said; echo $? > code; cp -a results/. seen/; "
        f"mount -o remount,size=64m results && {run}; echo $? > code2; cp -a results/. end/"
    )
    subprocess.run([*OWN_MOUNTS, script], cwd=finished, capture_output=True, timeout=300)
    assert (finished / "said").read_text().splitlines()[-1] == (
        "error: cannot write to results/x: No space left on device. To go on, make room there and run the same command "
        "again: everything that was finished is kept"
    )
    assert [(finished / name).read_text() for name in ("code", "code2")] == ["1\n", "0\n"]
    for name in ("seen", "end"):
        (finished / name).rename(finished / "results")
        assert tables(finished) == shown
        assert counted(finished) == done_before
        shutil.rmtree(finished / "results")


@pytest.mark.parametrize("verb", ["run", "report"])
def test_results_that_cannot_be_written_are_an_error_and_stay(finished, mounts, verb):
    shown, stored = tables(finished), events(finished)
    read_only = f"mount --bind -o ro results results && exec {shlex.join(LAYOUTLAB)} {verb} x.yaml"
    done = subprocess.run([*OWN_MOUNTS, read_only], cwd=finished, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == (
        "error: cannot write to results/runs/x: Read-only file system. To go on, make it writable, or choose another "
        "folder with --results"
    )
    assert (tables(finished), events(finished)) == (shown, stored)


@pytest.mark.slow
def test_a_disk_that_gets_full_at_any_point(tmp_path, mounts):
    """A whole run on file systems of many sizes; whatever was full, the same command with more room ends the run."""
    ended = []
    for number, size_kib in enumerate(range(40, 1000, 105)):
        folder = write(tmp_path / str(number), [TUNED, UNTUNED])
        (folder / "results").mkdir()
        run = f"{shlex.join(LAYOUTLAB)} run x.yaml"
        script = (
            f"mount -t tmpfs -o size={size_kib}k none results && {run} > first 2>&1; echo $? > code; "
            f"mount -o remount,size=64m results && {run}; mkdir end; cp -a results/. end/"
        )
        done = subprocess.run([*OWN_MOUNTS, script], cwd=folder, capture_output=True, text=True, timeout=300)
        said, code = (folder / "first").read_text(), (folder / "code").read_text().strip()
        assert "Traceback" not in said + done.stderr, said + done.stderr
        assert code == "0" or "No space left on device" in said or "no space" in said, (size_kib, said)
        (folder / "results").rmdir()
        (folder / "end").rename(folder / "results")
        assert trials(folder) == 8, size_kib
        assert {name: row["failure"] for name, row in rows(folder).items()} == dict.fromkeys(
            ("nhwc", "nchw", "tflite"), ""
        )
        ended.append((size_kib, code))
    print(ended)
    assert {code for _, code in ended} == {"0", "1"}


def test_layoutlab_says_so_when_even_its_folder_cannot_be_made(tmp_path):
    write(tmp_path, [UNTUNED])
    (tmp_path / "results").write_text("a file\n")
    done = layoutlab(tmp_path, "run", "x.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: cannot write to results/runs/x: Not a directory\n"
