"""Prices of blocks by llvm-mca: hand-made blocks, what it does not know, and the cache.

Latencies are those of LLVM's Kryo model (`llvm-mca -mcpu=kryo -instruction-info`).
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import random
import struct
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from layoutlab.device.kryo.peaks import BYTES_PER_CYCLE, FMAS_PER_CYCLE
from layoutlab.device.kryo.price import Price, Pricer
from layoutlab.device.kryo.toolchain import Toolchain
from layoutlab.errors import DeviceError

ADD = 0x91000421  # add x1, x1, #1
FMLA = 0x4E31CE00  # fmla v0.4s, v16.4s, v17.4s
JUMP, CALL = 0x14000010, 0x94000010  # b, bl
JUMP_REGISTER, CALL_REGISTER, RETURN = 0xD61F0060, 0xD63F0060, 0xD65F03C0  # br x3, blr x3, ret
# What only later cores have: ldadd x0, x1, [x2]; swp x0, x1, [x2]; ldapr x0, [x1]. llvm-mca has no price for them.
NEWER = [0xF8200041, 0xF8208041, 0xF8BFC020]
UNDECODABLE = 0xFFFFFFFF
SYSTEM = [0xD4000001, 0xD53BD040, 0xD5033BBF, 0xD5033FDF, 0xD5087620]  # svc, mrs, dmb ish, isb, a dc
BRANCHES = [0x54FFFFC1, 0xB4FFFF80, 0x36180060, 0x10000060, 0xB0000000, 0x580000C0]  # b.ne, cbz, tbz, adr, adrp, ldr


def block(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


@pytest.fixture
def pricer(toolchain: Toolchain, tmp_path: Path) -> Pricer:
    return Pricer(toolchain, tmp_path)


def price(pricer: Pricer, *words: int) -> Price:
    return pricer.price([block(*words)])[block(*words)]


def test_chains_cost_their_latency(pricer: Pricer) -> None:
    assert price(pricer, ADD) == Price(1, 0)
    assert price(pricer, ADD, ADD, ADD) == Price(3, 0)
    assert price(pricer, FMLA) == Price(5, 0)
    assert price(pricer, FMLA, FMLA) == Price(10, 0)


def test_a_very_long_block(pricer: Pricer) -> None:
    assert price(pricer, *[ADD] * 3000) == Price(3000, 0)


def test_a_call_costs_what_a_jump_does(pricer: Pricer) -> None:
    assert price(pricer, ADD, CALL) == price(pricer, ADD, JUMP)
    assert price(pricer, ADD, CALL_REGISTER) == price(pricer, ADD, JUMP_REGISTER)
    assert price(pricer, ADD, CALL_REGISTER).cycles < 2


@pytest.mark.parametrize("last", [*SYSTEM, *BRANCHES, RETURN], ids=hex)
def test_any_last_instruction(pricer: Pricer, last: int) -> None:
    cycles, unpriced = price(pricer, ADD, ADD, last)
    assert unpriced == 0
    assert 2 <= cycles < 10


@pytest.mark.parametrize("unknown", [*NEWER, UNDECODABLE], ids=hex)
def test_what_has_no_price_costs_one_cycle(pricer: Pricer, unknown: int) -> None:
    assert price(pricer, ADD, unknown, ADD) == Price(3, 1)
    assert price(pricer, unknown, unknown) == Price(2, 2)


def test_one_unknown_instruction_spoils_no_other_block(pricer: Pricer) -> None:
    chains = {block(*[ADD] * length): length for length in range(1, 50)}
    spoilt = [block(ADD, unknown) for unknown in [*NEWER, UNDECODABLE]]
    prices = pricer.price([*chains, *spoilt])
    assert {words: prices[words] for words in chains} == {words: Price(n, 0) for words, n in chains.items()}
    assert [prices[words] for words in spoilt] == [Price(2, 1)] * 4


def test_a_price_does_not_depend_on_its_company(toolchain: Toolchain, tmp_path: Path) -> None:
    random.seed(0)
    blocks = [block(*random.choices([ADD, FMLA, *SYSTEM, *BRANCHES], k=random.randint(1, 20))) for _ in range(40)]
    together = Pricer(toolchain, tmp_path / "together").price(blocks)
    alone = Pricer(toolchain, tmp_path / "alone")
    for words in blocks[:10]:
        assert alone.price([words])[words] == together[words]


def test_any_words_have_a_price(pricer: Pricer) -> None:
    """Data may be executed, or instructions that nobody thought of: no word may stop a run."""
    random.seed(1)
    blocks = [block(*(random.getrandbits(32) for _ in range(8))) for _ in range(20)]
    prices = pricer.price(blocks)
    assert all(prices[words].cycles > 0 and 0 <= prices[words].unpriced <= 8 for words in blocks)


def test_no_blocks(pricer: Pricer) -> None:
    assert pricer.price([]) == {}


def test_prices_are_kept(toolchain: Toolchain, tmp_path: Path) -> None:
    """The second pricer has an llvm-mc that gives nothing: it can only look up."""
    blocks = [block(ADD | number << 10) for number in range(1200)]
    first = dict(Pricer(toolchain, tmp_path).price(blocks))
    blind = Pricer(dataclasses.replace(toolchain, llvm_mc=("true",)), tmp_path)
    assert {words: blind.price(blocks)[words] for words in blocks} == first
    with pytest.raises(DeviceError) as error:
        blind.price([block(FMLA)])
    assert str(error.value) == (
        "llvm-mc printed 0 instructions where 1 were expected; provision the simulated core again ()"
    )


def test_prices_of_another_llvm_are_not_used(toolchain: Toolchain, tmp_path: Path) -> None:
    Pricer(toolchain, tmp_path).price([block(ADD)])
    other = tmp_path / "other-llvm-mca"
    other.write_text("#!/bin/sh\necho LLVM version 99\n")
    other.chmod(0o755)
    with pytest.raises(DeviceError, match="llvm-mca cannot price even a nop for kryo; provision the core again"):
        Pricer(dataclasses.replace(toolchain, llvm_mca=(str(other),)), tmp_path).price([block(ADD)])


def _price_elsewhere(toolchain: Toolchain, cache: Path, blocks: list[bytes]) -> dict[bytes, Price]:
    return dict(Pricer(toolchain, cache).price(blocks))


def test_two_processes_at_once(toolchain: Toolchain, tmp_path: Path) -> None:
    blocks = [block(*[ADD] * length) for length in range(1, 120)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(_price_elsewhere, toolchain, tmp_path, blocks[at:]) for at in (0, 0, 30, 60)]
        results = [job.result() for job in jobs]
    for prices in results:
        assert all(cycles == len(words) // 4 for words, (cycles, _) in prices.items())


def test_a_spoilt_cache(toolchain: Toolchain, tmp_path: Path) -> None:
    (tmp_path / "prices.sqlite").write_text("no database, but long enough to be looked at" * 100)
    with pytest.raises(DeviceError) as error:
        Pricer(toolchain, tmp_path).price([block(ADD)])
    assert str(error.value) == (
        f"{tmp_path}/prices.sqlite: the cache of block prices cannot be used (file is not a database); "
        "make it writable or delete it"
    )


def test_a_missing_llvm(toolchain: Toolchain, tmp_path: Path) -> None:
    with pytest.raises(DeviceError) as error:
        Pricer(dataclasses.replace(toolchain, llvm_mca=("/nowhere/llvm-mca",)), tmp_path)
    assert str(error.value) == (
        "/nowhere/llvm-mca: does not run (No such file or directory); provision the simulated core again"
    )


def test_the_stated_peaks_are_those_of_the_model(pricer: Pricer) -> None:
    """Independent multiply-adds, and loads and stores of whole vectors, as many as registers allow."""
    multiply_adds = [FMLA + register for register in range(16)]
    assert price(pricer, *multiply_adds).cycles * FMAS_PER_CYCLE == len(multiply_adds)
    for instruction in (0x3DC00000, 0x3D800000):  # ldr q0, [x0]; str q0, [x0]
        moves = [instruction + register for register in range(16)]
        assert price(pricer, *moves).cycles * BYTES_PER_CYCLE == 16 * len(moves)
