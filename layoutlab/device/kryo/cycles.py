"""What a region would take on the core: its blocks at their prices, and its cache misses."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from layoutlab.device.kryo.constants import CLOCK_GHZ, PENALTY
from layoutlab.device.kryo.counts import Block, Counts
from layoutlab.device.kryo.price import Price

_ELSEWHERE = "runtime"


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Raw counts of a region, from which its cycles can be computed again.

    `compute_cycles` is what the blocks cost with every access hitting L1. `unpriced` of the executed `instructions`
    had no price. `accesses` and misses are lines, see `counts.Block`.
    """

    compute_cycles: float
    instructions: int
    unpriced: int
    accesses: int
    l1_misses: int
    l1_nonsequential: int
    l2_misses: int


@dataclass(frozen=True, kw_only=True)
class Cycles:
    """Cycles of a region: `compute` with every access hitting L1, `memory` for the misses; and the raw counts."""

    compute: float
    memory: float
    totals: Totals

    @property
    def kcycles(self) -> float:
        """Compute and memory together, in thousands of cycles."""
        return (self.compute + self.memory) / 1e3

    @property
    def ms(self) -> float:
        """Milliseconds at CLOCK_GHZ."""
        return self.kcycles / (CLOCK_GHZ * 1e3)


def estimate(totals: Totals) -> Cycles:
    """The model: what the blocks cost, and PENALTY for each L1 miss that the prefetcher does not foresee."""
    return Cycles(compute=totals.compute_cycles, memory=PENALTY * totals.l1_nonsequential, totals=totals)


def count_cycles(counts: Counts, prices: Mapping[bytes, Price]) -> Cycles:
    """Cycles of a whole region. `prices` must have each block's."""
    return estimate(_totals(counts.blocks, prices))


def by_function(
    counts: Counts, prices: Mapping[bytes, Price], symbols: Sequence[tuple[int, int, str]]
) -> list[tuple[str, Cycles]]:
    """The cycles of each function that ran, most cycles first; together they are exactly the region's.

    `symbols` are (first address, address after the last, name), sorted and without overlap; blocks outside of all
    are those of "runtime". Symbols of one name are one function.
    """
    starts = [start for start, _, _ in symbols]
    functions: dict[str, list[Block]] = defaultdict(list)
    for block in counts.blocks:
        at = bisect.bisect_right(starts, block.vaddr) - 1
        inside = at >= 0 and block.vaddr < symbols[at][1]
        functions[symbols[at][2] if inside else _ELSEWHERE].append(block)
    estimates = [(name, estimate(_totals(blocks, prices))) for name, blocks in functions.items()]
    return sorted(estimates, key=lambda item: (-item[1].kcycles, item[0]))


def _totals(blocks: Iterable[Block], prices: Mapping[bytes, Price]) -> Totals:
    blocks = tuple(blocks)
    counts = Counts(blocks)
    return Totals(
        # Prices are multiples of a power of two: the sum does not depend on the order.
        compute_cycles=sum(block.executions * prices[block.words].cycles for block in blocks),
        instructions=counts.instructions,
        unpriced=sum(block.executions * prices[block.words].unpriced for block in blocks),
        accesses=counts.accesses,
        l1_misses=counts.l1_misses,
        l1_nonsequential=counts.l1_nonsequential,
        l2_misses=counts.l2_misses,
    )
