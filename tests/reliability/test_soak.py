"""What stays behind after runs: nothing, and the soak says so when something does."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from benchmarks import soak
from layoutlab.scratch import orphaned_semaphores

from ..test_kill import processes_in

CLEAN = soak.Footprint(memory_mib=150, descriptors=8, threads=3, children=0, temporary_files=0, semaphores=0)


def test_a_run_leaves_no_process_and_no_temporary_file_behind(finished_run):
    assert list((finished_run / "tmp").iterdir()) == []
    assert processes_in(finished_run) == set()
    orphans = orphaned_semaphores()
    # A worker of another test that is ended just now removes its own in a moment.
    time.sleep(2 if orphans else 0)
    assert orphans & orphaned_semaphores() == set()


@pytest.mark.parametrize(
    ("grown", "problem"),
    [
        ({"descriptors": 9}, "descriptors grew from 8 to 9"),
        ({"temporary_files": 2}, "temporary files grew from 0 to 2"),
        ({"semaphores": 1}, "semaphores grew from 0 to 1"),
        ({"memory_mib": 155}, "memory mib grew from 150 to 155"),
    ],
)
def test_what_grew_is_named(grown, problem):
    taken = [CLEAN] * 6 + [replace(CLEAN, **grown)] * 6
    assert soak.find_leaks(taken) == [problem]
    # In the warm-up anything may grow.
    assert soak.find_leaks([CLEAN] * 2 + [replace(CLEAN, **grown)] * 6) == []


def test_the_summary():
    taken = [CLEAN, CLEAN, CLEAN, replace(CLEAN, memory_mib=151.25)]
    assert soak.summary(taken, soak.find_leaks(taken)) == (
        "4 turns, 2 of them warm-up\n"
        "first: 150.0 MiB, 8 descriptors, 3 threads, 0 children, 0 temporary files, 0 semaphores\n"
        "last:  151.2 MiB, 8 descriptors, 3 threads, 0 children, 0 temporary files, 0 semaphores\n"
        "nothing stayed behind\n"
    )


@pytest.mark.slow
def test_a_soak_of_half_an_hour(capsys):
    assert soak.main(["--minutes", "30"]) == 0
    print(capsys.readouterr().out)
