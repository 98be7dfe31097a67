"""A finished run is not run again, wherever its folder lies now, and only one process runs a spec at a time."""

from __future__ import annotations

import os
import subprocess
import sys

from layoutlab.store import Store

from .runs import counted, layoutlab, tables

# The command line, saying each job that it starts.
JOBS = """
import sys
from layoutlab.cli import main
from layoutlab.process import Worker
do = Worker.do
def said(self, verb, *arguments, **options):
    print("job", verb, file=sys.stderr)
    return do(self, verb, *arguments, **options)
Worker.do = said
sys.exit(main(["run", "x.yaml"]))
"""


def test_a_finished_spec_measures_nothing_and_starts_two_jobs_in_a_moved_folder_too(finished):
    before, shown = counted(finished), tables(finished)
    moved = finished.with_name("moved")
    finished.rename(moved)
    again = subprocess.run([sys.executable, "-c", JOBS], cwd=moved, capture_output=True, text=True, timeout=60)
    assert again.returncode == 0, again.stderr
    # What this machine is, and what the model's inputs are: neither tunes, builds, runs nor measures anything.
    jobs = [line.removeprefix("job ") for line in again.stderr.splitlines() if line.startswith("job ")]
    assert jobs == ["describe_host", "describe_model"]
    assert counted(moved) == before == {"baseline": 1, "built": 2, "samples": 6}
    assert tables(moved) == shown


def test_a_spec_that_is_being_run_cannot_be_run_again_meanwhile(finished):
    shown = tables(finished)
    folder = finished / "results" / "runs" / "x"
    with Store(folder):
        events = (folder / "events.jsonl").read_bytes()
        for verb in ("run", "report", "tune"):
            second = layoutlab(finished, verb, "x.yaml")
            assert (second.returncode, second.stdout) == (1, "")
            assert second.stderr.splitlines()[-1] == (
                f"error: another run is using results/runs/x (process {os.getpid()}): wait for it to end, or end it"
            )
        assert (folder / "events.jsonl").read_bytes() == events
    assert tables(finished) == shown
