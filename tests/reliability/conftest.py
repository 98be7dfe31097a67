"""A finished run that tests begin from, each with a copy of its own."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from .runs import TUNED, UNTUNED, layoutlab, write


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of a tuned variant and an untuned one, in which `tmp` was its temporary folder.

    Not to be changed. All processes that run tests side by side have the same.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "finished"
    with open(shared / "finished.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _run(write(shared / "unfinished", [TUNED, UNTUNED])).rename(folder)
    return folder


def _run(folder: Path) -> Path:
    (folder / "tmp").mkdir()
    done = layoutlab(folder, "run", "x.yaml", environment={"TMPDIR": str(folder / "tmp")})
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def finished(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of a finished run, in a folder of another name."""
    return Path(shutil.copytree(finished_run, tmp_path / "a copy"))
