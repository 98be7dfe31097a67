"""Whether a busy machine is noticed, from what Linux says of processors' time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from layoutlab.measure.busy import busy_reasons, cores_of_others, read_cpu_times


def stat(folder: Path, text: str) -> dict[str, float]:
    (folder / "stat").write_text(text)
    return read_cpu_times(folder)


def times(clock: float, own: float, everything: float, stolen: float = 0.0) -> dict[str, float]:
    return {"clock": clock, "own": own, "all": everything, "stolen": stolen}


def test_idle_time_and_waiting_do_not_count(tmp_path):
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    found = stat(tmp_path, "cpu  100 10 20 9999 8888 3 4 7 50 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n")
    assert found["all"] == pytest.approx(137 * tick_s)
    assert found["stolen"] == pytest.approx(7 * tick_s)


@pytest.mark.parametrize(
    ("after", "reasons"),
    [
        (times(10, 10, 10.4), []),
        (times(10, 10, 20.0), ["other processes used 1.00 cores"]),
        (times(10, 6, 6.2, stolen=4.0), ["other processes used 0.42 cores"]),
        (times(10, 20, 20.1), []),
    ],
)
def test_others_are_what_is_left_when_our_own_time_is_taken_off(after, reasons):
    assert busy_reasons(times(0, 0, 0), after, threads=1) == reasons


@pytest.mark.parametrize("text", ["", "cpu  1 2\n", "nonsense\n", None])
def test_where_that_is_not_readable_a_process_that_shares_its_core_says_so(tmp_path, text):
    if text is not None:
        (tmp_path / "stat").write_text(text)
    assert set(read_cpu_times(tmp_path)) == {"clock", "own"}
    before, half, whole = ({"clock": clock, "own": own} for clock, own in ((0, 0), (10, 5), (10, 9.9)))
    assert cores_of_others(before, half) is None
    assert busy_reasons(before, half, threads=1) == ["it got only 50 % of a core"]
    assert busy_reasons(before, whole, threads=1) == []
    moment = {"clock": 0.05, "own": 0.0, "all": 0.05, "stolen": 0.0}
    assert busy_reasons(times(0, 0, 0), moment, threads=1) == []
    # Threads wait for each other, so that several say nothing.
    assert busy_reasons(before, half, threads=2) == []
