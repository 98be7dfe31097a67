"""Loops on the simulated core whose cycles and cache misses can be worked out by hand, and the model over them.

Latencies are those of LLVM's Kryo model (`llvm-mca -mcpu=kryo -instruction-info`): fmla 5 cycles and one a cycle,
add of a number 1 cycle, add of a register 2, ldr 3 cycles and two a cycle.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutlab.device.kryo.constants import CLOCK_GHZ, PENALTY
from layoutlab.device.kryo.counts import Block, Counts
from layoutlab.device.kryo.cycles import Cycles, Totals, by_function, count_cycles, estimate
from layoutlab.device.kryo.price import Price, Pricer
from layoutlab.device.kryo.toolchain import Toolchain
from tests.device.kryo import guest

LINE, PAGE = 64, 4096
# Around the loop a region has a few blocks of its own: marks, a call, and the loading of the loop's arguments.
AROUND = 100

Run = Callable[..., Counts]


@pytest.fixture(scope="module")
def run(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("kernels")
    program = guest.build(toolchain, folder)
    return lambda *kernel, **arguments: guest.count(toolchain, program, folder, *kernel, **arguments)


@pytest.fixture(scope="module")
def pricer(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Pricer:
    return Pricer(toolchain, tmp_path_factory.mktemp("prices"))


def cycles_of(pricer: Pricer, counts: Counts) -> Cycles:
    return count_cycles(counts, pricer.price(block.words for block in counts.blocks))


def misses(block: Block | Counts) -> tuple[int, int, int, int]:
    return block.accesses, block.l1_misses, block.l1_nonsequential, block.l2_misses


@pytest.mark.parametrize(
    ("kernel", "cycles"),
    [
        ("dependent_fma", 5),  # the latency of an fmla: each waits for the last
        ("independent_fma", 8),  # eight of them, one a cycle
        ("integer_chain", 4),  # four adds, each waiting for the last
        ("walk", 2),  # the loads overlap; what waits is the addition of a register
    ],
)
def test_compute(run: Run, pricer: Pricer, kernel: str, cycles: int) -> None:
    counts = run(kernel, "cold", count=10_000)
    loop = guest.loop(counts)
    assert loop.executions == 10_000
    assert pricer.price([loop.words])[loop.words] == Price(cycles, 0)
    assert cycles * 10_000 < cycles_of(pricer, counts).compute < cycles * 10_000 + AROUND


def test_a_stream_larger_than_l2(run: Run, pricer: Pricer) -> None:
    """Each line is missed once and follows the one before: only the first is paid for, in the second pass too."""
    lines = (4 << 20) // LINE
    counts = run("walk", "cold", "warm", count=lines, stride=LINE)
    assert misses(guest.loop(counts)) == (lines, lines, 1, lines)
    eights = run("walk", "cold", count=8 * lines, stride=8)
    assert misses(guest.loop(eights)) == (8 * lines, lines, 1, lines)
    # The loop's arguments lie elsewhere: one more line, in each region.
    cycles = cycles_of(pricer, counts)
    assert cycles.memory == 2 * PENALTY
    assert 2 * lines < cycles.compute < 2 * lines + AROUND


def test_a_stride_that_defeats_l1(run: Run, pricer: Pricer) -> None:
    """Lines a page apart share a set of L1, which has 16 ways. L2 has a set for each of them."""
    counts = run("walk", "cold", count=32, stride=PAGE, passes=10)
    assert misses(guest.loop(counts)) == (320, 320, 320, 32)
    assert cycles_of(pricer, counts).memory == PENALTY * 321
    few = {"count": 16, "stride": PAGE, "passes": 10}
    assert misses(guest.loop(run("walk", "cold", **few))) == (160, 16, 16, 16)
    # With half the ways, and the same sets, they no longer fit.
    assert misses(guest.loop(run("walk", "cold", **few, plugin="l1_bytes=32768,l1_ways=8"))) == (160, 160, 160, 16)


def test_a_set_that_fits_l1(run: Run) -> None:
    """After the first pass nothing is missed; a cold start forgets that there was one, a warm start does not."""
    lines = (32 << 10) // LINE
    once = (10 * lines, lines, 1, lines)
    assert misses(guest.loop(run("walk", "cold", count=lines, stride=LINE, passes=10))) == once
    assert misses(guest.loop(run("walk", "cold", "cold", count=lines, stride=LINE, passes=10))) == once
    assert misses(run("walk", "cold", "warm", count=lines, stride=LINE, passes=10))[1:] == (0, 0, 0)


def test_a_set_that_fits_l2(run: Run) -> None:
    """L1 has forgotten each line when it comes again, L2 has it. Each pass begins where the prefetcher is not."""
    lines = (1 << 20) // LINE
    counts = run("walk", "cold", count=lines, stride=LINE, passes=3)
    assert misses(guest.loop(counts)) == (3 * lines, 3 * lines, 3, lines)


def test_the_caches_can_be_changed(run: Run) -> None:
    lines = (32 << 10) // LINE
    small = run("walk", "cold", count=lines, stride=LINE, passes=2, plugin="l1_bytes=16384,l2_bytes=16384")
    assert misses(guest.loop(small)) == (2 * lines, 2 * lines, 2, 2 * lines)


def test_an_access_across_lines_touches_both(run: Run) -> None:
    counts = run("walk", "cold", count=100, stride=LINE, skip=LINE - 4)
    assert misses(guest.loop(counts)) == (200, 101, 1, 101)
    assert misses(guest.loop(run("walk", "cold", count=100, stride=LINE, skip=LINE - 8)))[0] == 100


def test_a_copy_has_two_streams(run: Run) -> None:
    """Reads and writes miss in turns: with one stream none follows the last, with two all do.

    Pages are handed out in turns too: where a page of the source begins, it follows a page of the target by chance
    and is sequential, where a page of the target begins, it is not.
    """
    pages, lines = 16, 16 * PAGE // LINE
    one = run("copy", "cold", count=lines, stride=LINE)
    assert misses(guest.loop(one)) == (2 * lines, 2 * lines, 2 * lines - (pages - 1), 2 * lines)
    two = run("copy", "cold", count=lines, stride=LINE, plugin="streams=2")
    assert misses(guest.loop(two)) == (2 * lines, 2 * lines, pages + 1, 2 * lines)


def test_nothing_outside_of_regions_counts(run: Run) -> None:
    """Neither as executions nor in the caches, though more than they hold is read between the regions."""
    lines = (32 << 10) // LINE
    inside = run("walk", "cold", "warm", count=lines, stride=LINE)
    around = run("walk", "plain", "cold", "plain", "plain", "warm", "plain", count=lines, stride=LINE)
    assert around == inside


def test_runs_repeat_wherever_the_buffers_lie(run: Run) -> None:
    """A buffer and its copy fill most of an L2 in which a line has one place only.

    By virtual addresses both would want the same places, all of them or some, as the distance of the buffers has it.
    """
    lines = (768 << 10) // LINE
    arguments = {"count": lines, "stride": LINE, "plugin": "l2_ways=1"}
    counts = run("copy", "cold", "warm", **arguments)
    assert (counts.l1_misses, counts.l2_misses) == (2 * lines + 1, 0)
    for skip in (0, PAGE, 37 * PAGE, (1 << 20) + 5 * PAGE):
        assert run("copy", "cold", "warm", **arguments, skip=skip) == counts


def test_by_function_of_a_program(run: Run, pricer: Pricer) -> None:
    counts = run("walk", "cold", count=1000, stride=LINE)
    loop = guest.loop(counts)
    prices = pricer.price(block.words for block in counts.blocks)
    functions = by_function(counts, prices, [(loop.vaddr, loop.vaddr + len(loop.words), "walk")])
    assert [name for name, _ in functions] == ["walk", "runtime"]
    assert functions[0][1] == estimate(
        Totals(
            compute_cycles=2000.0,
            instructions=4000,
            unpriced=0,
            accesses=1000,
            l1_misses=1000,
            l1_nonsequential=1,
            l2_misses=1000,
        )
    )


BLOCKS = st.lists(
    st.builds(
        Block,
        vaddr=st.integers(0, 100),
        words=st.binary(min_size=4, max_size=4),
        executions=st.integers(1, 10**9),
        accesses=st.integers(0, 10**9),
        l1_misses=st.integers(0, 10**9),
        l1_nonsequential=st.integers(0, 10**9),
        l2_misses=st.integers(0, 10**9),
    )
)


@given(
    blocks=BLOCKS,
    sixteenths=st.lists(st.integers(0, 2**14), min_size=1),
    ends=st.lists(st.integers(0, 110), unique=True),
    names=st.lists(st.sampled_from("abcd"), min_size=1),
)
def test_functions_add_up_to_the_total(
    blocks: list[Block], sixteenths: list[int], ends: list[int], names: list[str]
) -> None:
    counts = Counts(tuple(blocks))
    prices = {block.words: Price(sixteenths[at % len(sixteenths)] / 16, at % 3) for at, block in enumerate(blocks)}
    bounds = sorted(ends)
    symbols = [(bounds[at], bounds[at + 1], names[at % len(names)]) for at in range(0, len(bounds) - 1, 2)]
    functions = [cycles for _, cycles in by_function(counts, prices, symbols)]
    total = count_cycles(counts, prices)
    for field in Totals.__dataclass_fields__:
        assert sum(getattr(cycles.totals, field) for cycles in functions) == getattr(total.totals, field)
    assert sum(cycles.compute for cycles in functions) == total.compute
    assert sum(cycles.memory for cycles in functions) == total.memory


def test_a_stored_total_gives_the_same_estimate() -> None:
    """Milliseconds follow from raw counts alone: a million cycles, and as many again for misses."""
    totals = Totals(
        compute_cycles=1e6,
        instructions=10**6,
        unpriced=0,
        accesses=10**6,
        l1_misses=10**6,
        l1_nonsequential=10**6,
        l2_misses=0,
    )
    cycles = estimate(totals)
    assert (cycles.compute, cycles.memory) == (1e6, PENALTY * 1e6)
    assert cycles.kcycles == 1e3 + PENALTY * 1e3
    assert cycles.ms == pytest.approx((1 + PENALTY) / CLOCK_GHZ)
