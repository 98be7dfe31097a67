"""Verdicts on samples whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from layoutlab.measure.stats import latency, ratio


def rounds(median_ms: float, count: int = 9, spread: float = 0.005, seed: int = 1) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    return [list(median_ms * (1 + spread * rng.normal()) * (1 + 0.002 * rng.random(10))) for _ in range(count)]


def test_a_latency_is_the_median_of_the_rounds_medians():
    found = latency([[1.0, 1.0, 9.0], [2.0, 2.0, 2.0], [4.0, 4.0, 0.5]])
    assert (found.median_ms, found.mad_ms, found.min_ms) == (2.0, 1.0, 0.5)
    assert (found.rounds, found.samples) == (3, 9)
    assert found.unstable


def test_one_disturbed_round_does_not_move_it():
    quiet = rounds(5.0)
    disturbed = [*quiet[:-1], [50.0] * 10]
    assert latency(disturbed).median_ms == pytest.approx(5.0, rel=0.01)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [(4.5, "faster"), (5.5, "slower"), (5.0, "no difference shown"), (5.05, "no difference shown")],
)
def test_verdicts(row, verdict):
    found = ratio(rounds(row, seed=2), rounds(5.0, seed=3), seed=1)
    assert found.verdict == verdict
    assert found.low <= found.value <= found.high
    assert found.value == pytest.approx(row / 5.0, rel=0.01)


def test_rows_that_jump_get_no_verdict():
    assert ratio(rounds(4.0, spread=0.4), rounds(5.0), seed=1).verdict == "unstable"
    assert ratio(rounds(4.0), rounds(5.0, spread=0.4), seed=1).verdict == "unstable"


def test_one_round_has_no_interval():
    found = ratio(rounds(4.0, count=1), rounds(5.0, count=1), seed=1)
    assert (found.low, found.high, found.verdict) == (None, None, "unstable")


def test_what_disturbs_a_round_disturbs_both_rows_of_it():
    """Pairing rounds: a machine whose clock drifts still shows a steady ratio."""
    drift = np.linspace(1.0, 1.15, 9)
    row = [[0.8 * d] * 10 for d in drift]
    base = [[1.0 * d] * 10 for d in drift]
    found = ratio(row, base, seed=1)
    assert found.high - found.low < 0.06
    assert found.verdict == "faster"


def test_a_baseline_of_another_time_is_not_paired():
    """Its rounds need not be as many, and its luck is not the row's: the same drift widens the interval."""
    drift = np.linspace(1.0, 1.15, 9)
    row, base = [[0.8 * d] for d in drift], [[1.0 * d] for d in drift]
    together, apart = ratio(row, base, seed=1), ratio(row, base, seed=1, paired=False)
    assert apart.high - apart.low > together.high - together.low
    fewer = ratio(row, base[:4], seed=1, paired=False)
    assert fewer.low <= fewer.value <= fewer.high
    assert ratio(row, base[:1], seed=1, paired=False).low is None


def test_the_same_samples_give_the_same_interval():
    a, b = rounds(4.0, seed=4), rounds(5.0, seed=5)
    assert ratio(a, b, seed=1) == ratio(a, b, seed=1)
