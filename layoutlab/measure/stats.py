"""Latencies from samples, and ratios between rows that carry their uncertainty.

The unit of statistics is the round: samples within one process share its luck (memory layout, the state of the
machine), so a row's rounds, not its samples, are what a ratio's interval is drawn from.

A ratio is the trimmed geometric mean of the rounds' ratios. Its interval is Student's t with the standard error of a
bootstrap over rounds; Hesterberg (The American Statistician 69, 2015) has it, and the factor for few rounds. Percentile
and BCa intervals are too narrow for as few rounds as there are. docs/statistics.md has the error rates of both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# Of the bootstrap; its standard error is then known to 2 %.
_RESAMPLES = 2_000
# The share of the rounds that is left out at each end.
_TRIM = 0.2
_CONFIDENCE = 0.95
# Differences below this are not called differences, however narrow the interval.
_SMALLEST_DIFFERENCE = 0.02
# A row whose rounds spread more than this around their median says little.
_UNSTABLE = 0.10


@dataclass(frozen=True, kw_only=True)
class Latency:
    """A row's latency: `median_ms` over the rounds' medians, `mad_ms` their median absolute deviation.

    `min_ms`, `p5_ms` and `p90_ms` are over all samples; `rounds` and `samples` count them.
    """

    median_ms: float
    mad_ms: float
    min_ms: float
    p5_ms: float
    p90_ms: float
    rounds: int
    samples: int

    @property
    def unstable(self) -> bool:
        """Whether the rounds differ too much for the median to mean a latency."""
        return self.mad_ms > _UNSTABLE * self.median_ms


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How many times the baseline's latency a row takes; below 1 is faster.

    `low` and `high` are a 95 % interval, None when there are too few rounds for one, or when the figures are exact.
    """

    value: float
    low: float | None
    high: float | None
    verdict: str


def latency(rounds: Sequence[Sequence[float]]) -> Latency:
    """Summarise the samples (ms) of a row, given round by round. Every round must hold a sample."""
    medians = np.array([np.median(samples) for samples in rounds])
    everything = np.concatenate([np.asarray(samples) for samples in rounds])
    median = float(np.median(medians))
    return Latency(
        median_ms=median,
        mad_ms=float(np.median(np.abs(medians - median))),
        min_ms=float(everything.min()),
        p5_ms=float(np.percentile(everything, 5)),
        p90_ms=float(np.percentile(everything, 90)),
        rounds=len(medians),
        samples=everything.size,
    )


def trimmed(rounds: int) -> int:
    """How many of the highest and how many of the lowest rounds a ratio leaves out."""
    return int(_TRIM * rounds)


def ratio(
    rounds: Sequence[Sequence[float]],
    baseline: Sequence[Sequence[float]],
    seed: int,
    paired: bool = True,
    doubtful: bool = False,
) -> Ratio:
    """The ratio of two rows' latencies, measured in the same rounds, with an interval by bootstrap over rounds.

    Rounds are resampled in pairs: what disturbed a round disturbed both rows of it. Those of a baseline that was
    measured at another time are not `paired`, and need not be as many. With fewer than two rounds there is no
    interval, and the verdict is `unstable`; so it is when the samples are `doubtful` for a reason of their own.
    """
    row = np.log([np.median(samples) for samples in rounds])
    base = np.log([np.median(samples) for samples in baseline])
    fewest = min(len(row), len(base))
    value = float(_log_ratio(row, base, paired))
    if fewest < 2:
        return Ratio(value=math.exp(value), low=None, high=None, verdict="unstable")
    half = _half_width(row, base, seed, paired)
    low, center, high = (math.exp(value + offset) for offset in (-half, 0, half))
    unstable = doubtful or latency(rounds).unstable or latency(baseline).unstable
    return Ratio(value=center, low=low, high=high, verdict="unstable" if unstable else _verdict(center, low, high))


def _log_ratio(row: Any, base: Any, paired: bool, axis: int = -1) -> Any:
    """The logarithm of the ratio from logarithms of the rounds' medians, along an axis."""
    from scipy.stats import trim_mean

    if paired:
        return trim_mean(row - base, _TRIM, axis=axis)
    return trim_mean(row, _TRIM, axis=axis) - trim_mean(base, _TRIM, axis=axis)


def _half_width(row: Any, base: Any, seed: int, paired: bool) -> float:
    """Half the width of the interval around `_log_ratio`."""
    from scipy.stats import bootstrap, t

    error = bootstrap(
        (row, base),
        lambda a, b, axis: _log_ratio(a, b, paired, axis),
        paired=paired,
        vectorized=True,
        n_resamples=_RESAMPLES,
        method="percentile",  # of which only the standard error is used
        rng=np.random.default_rng(seed),
    ).standard_error
    fewest = min(len(row), len(base))
    return float(t.ppf((1 + _CONFIDENCE) / 2, fewest - 1) * math.sqrt(fewest / (fewest - 1)) * error)


def exact_ratio(value: float) -> Ratio:
    """The ratio of two figures that repeat exactly, as simulated ones do: it has no interval."""
    return Ratio(value=value, low=None, high=None, verdict=_verdict(value, value, value))


def _verdict(value: float, low: float, high: float) -> str:
    if high < 1 and value <= 1 - _SMALLEST_DIFFERENCE:
        return "faster"
    if low > 1 and value >= 1 + _SMALLEST_DIFFERENCE:
        return "slower"
    return "no difference shown"
