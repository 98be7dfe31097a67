"""Verdicts on samples whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from layoutlab.measure.stats import latency, ratio, trimmed
from layoutlab.spec.models import MeasureSpec

from .noise import Noise


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


ROUNDS = MeasureSpec().rounds
COMPARISONS = 100


@pytest.fixture(scope="module")
def noise() -> Noise:
    return Noise(seed=8)


def called(noise: Noise, factor: float) -> list[str]:
    return [
        ratio(noise.rounds(5.0 * factor, ROUNDS), noise.rounds(5.0, ROUNDS), seed=number).verdict
        for number in range(COMPARISONS)
    ]


def test_of_100_comparisons_with_itself_at_most_5_are_called_different(noise):
    verdicts = called(noise, 1.0)
    assert verdicts.count("no difference shown") >= 0.95 * COMPARISONS


def test_of_100_slowdowns_by_5_percent_at_least_95_are_found(noise):
    verdicts = called(noise, 1.05)
    assert verdicts.count("slower") >= 0.95 * COMPARISONS


@pytest.mark.parametrize("count", [3, 9, ROUNDS])
def test_19_of_20_intervals_hold_the_truth_however_few_rounds_there_are(noise, count):
    found = [ratio(noise.rounds(4.0, count), noise.rounds(5.0, count), seed=1) for _ in range(200)]
    assert sum(interval.low <= 0.8 <= interval.high for interval in found) >= 0.92 * len(found)


def test_a_fifth_of_the_rounds_at_each_end_moves_nothing():
    quiet = rounds(4.0, count=10, seed=6)
    base = rounds(5.0, count=10, seed=7)
    disturbed = [[8.0] * 10, [9.0] * 10, *quiet[2:]]
    assert trimmed(10) == 2
    assert ratio(disturbed, base, seed=1).value == pytest.approx(0.8, rel=0.01)


def test_doubtful_samples_get_no_verdict_but_keep_their_interval():
    found = ratio(rounds(4.0, seed=2), rounds(5.0, seed=3), seed=1, doubtful=True)
    assert found.verdict == "unstable"
    assert found.low < found.value < found.high < 1
