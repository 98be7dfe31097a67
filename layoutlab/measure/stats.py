"""Latencies from samples, and ratios between rows that carry their uncertainty.

The unit of statistics is the round: samples within one process share its luck (memory layout, the state of the
machine), so a row's rounds, not its samples, are what a ratio's interval is drawn from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_RESAMPLES = 10_000
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


def ratio(
    rounds: Sequence[Sequence[float]], baseline: Sequence[Sequence[float]], seed: int, paired: bool = True
) -> Ratio:
    """The ratio of two rows' latencies, measured in the same rounds, with a bootstrap interval over rounds.

    Rounds are resampled in pairs: what disturbed a round disturbed both rows of it. Those of a baseline that was
    measured at another time are not `paired`, and need not be as many. With fewer than two rounds there is no
    interval, and the verdict is `unstable`.
    """
    row = np.array([np.median(samples) for samples in rounds])
    base = np.array([np.median(samples) for samples in baseline])
    value = float(np.median(row) / np.median(base))
    if min(len(row), len(base)) < 2:
        return Ratio(value=value, low=None, high=None, verdict="unstable")
    from scipy.stats import bootstrap

    interval = bootstrap(
        (row, base),
        lambda a, b, axis: np.median(a, axis=axis) / np.median(b, axis=axis),
        paired=paired,
        vectorized=True,
        n_resamples=_RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    unstable = latency(rounds).unstable or latency(baseline).unstable
    low, high = float(interval.low), float(interval.high)
    return Ratio(value=value, low=low, high=high, verdict="unstable" if unstable else _verdict(value, low, high))


def exact_ratio(value: float) -> Ratio:
    """The ratio of two figures that repeat exactly, as simulated ones do: it has no interval."""
    return Ratio(value=value, low=None, high=None, verdict=_verdict(value, value, value))


def _verdict(value: float, low: float, high: float) -> str:
    if high < 1 and value <= 1 - _SMALLEST_DIFFERENCE:
        return "faster"
    if low > 1 and value >= 1 + _SMALLEST_DIFFERENCE:
        return "slower"
    return "no difference shown"
