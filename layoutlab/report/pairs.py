"""Ratios between variants, and the spread of each row: tables beside the main one."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from tabulate import tabulate

from layoutlab.measure.stats import Latency, Ratio, exact_ratio, ratio

# More pairs than this are in pairs.csv and table.json alone.
_SHOWN = 15


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two variants: `ratio` is how many times the latency of `other` that `variant` takes, with the verdict on it."""

    variant: str
    other: str
    ratio: Ratio


def measured_pairs(
    samples: Mapping[str, Sequence[Sequence[float]]], doubtful: Mapping[str, bool], seed: int
) -> tuple[Pair, ...]:
    """Each pair once, in the order given. `samples` are ms by variant and round, all of the same rounds."""
    return tuple(
        Pair(
            variant=one,
            other=two,
            ratio=ratio(samples[one], samples[two], seed, doubtful=doubtful[one] or doubtful[two]),
        )
        for one, two in combinations(samples, 2)
    )


def exact_pairs(times_ms: Mapping[str, float]) -> tuple[Pair, ...]:
    """Each pair of simulated variants once."""
    return tuple(
        Pair(variant=one, other=two, ratio=exact_ratio(times_ms[one] / times_ms[two]))
        for one, two in combinations(times_ms, 2)
    )


def ratio_text(found: Ratio | None) -> str:
    """As tables show it, with the interval if there is one."""
    if found is None:
        return "-"
    if found.low is None:
        return f"{found.value:.2f}"
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def pairs_table(pairs: Sequence[Pair], form: str) -> str:
    """A table in one of tabulate's forms; empty when there are no pairs, or too many to look at."""
    cells = pairs_cells(pairs)
    if not cells:
        return ""
    align = ("left", "right", "left", "right")
    return tabulate(cells, headers="keys", tablefmt=form, disable_numparse=True, colalign=align)


def pairs_cells(pairs: Sequence[Pair]) -> list[dict[str, str]]:
    """The cells of each pair by their headings; none when there are too many to look at."""
    if not 0 < len(pairs) <= _SHOWN:
        return []
    takes = "takes x" if pairs[0].ratio.low is None else "takes x [95 %]"
    return [
        {"variant": pair.variant, takes: ratio_text(pair.ratio), "of": pair.other, "verdict": pair.ratio.verdict}
        for pair in pairs
    ]


def pairs_csv(pairs: Sequence[Pair]) -> str:
    """One line a pair, numbers unrounded."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("variant", "other", "ratio", "ratio_low", "ratio_high", "verdict"))
    for pair in pairs:
        found = pair.ratio
        writer.writerow((pair.variant, pair.other, found.value, found.low, found.high, found.verdict))
    return buffer.getvalue()


def spread_table(latencies: Mapping[str, Latency], form: str) -> str:
    """Minimum, percentiles and counts of each measured row."""
    cells = spread_cells(latencies)
    align = ("left", *["right"] * (len(cells[0]) - 1))
    return tabulate(cells, headers="keys", tablefmt=form, disable_numparse=True, colalign=align)


def spread_cells(latencies: Mapping[str, Latency]) -> list[dict[str, str]]:
    """The cells of each row by their headings."""
    return [
        {
            "variant": name,
            "min ms": f"{found.min_ms:.3f}",
            "p5 ms": f"{found.p5_ms:.3f}",
            "median ms": f"{found.median_ms:.3f}",
            "p90 ms": f"{found.p90_ms:.3f}",
            "MAD ms": f"{found.mad_ms:.3f}",
            "rounds": str(found.rounds),
            "samples": str(found.samples),
        }
        for name, found in latencies.items()
    ]
