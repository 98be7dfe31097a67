"""The dump of the plugin: what the plugin writes is read, and what it did not write is refused."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from layoutlab.device.kryo.counts import Block, read_counts
from layoutlab.device.kryo.toolchain import Toolchain
from layoutlab.errors import DeviceError
from tests.device.kryo import guest

NOP, RET = bytes.fromhex("1f2003d5"), bytes.fromhex("c0035fd6")


def dump(blocks: list[Block]) -> bytes:
    words = b"".join(block.words for block in blocks)
    records = [struct.pack("<7Q", block.vaddr, *block[2:], len(block.words) // 4) for block in blocks]
    return b"LLCOUNT1" + struct.pack("<2Q", len(blocks), len(words) // 4) + b"".join(records) + words


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "1.counts"


def test_read(path: Path) -> None:
    first, second = Block(0x1000, NOP + RET, 3, 10, 5, 2, 1), Block(0xFFFF_FFFF_FFFF_0000, RET, 2**40, 1, 1, 1, 1)
    path.write_bytes(dump([second, first]))
    counts = read_counts(path)
    assert counts.blocks == (first, second)
    assert counts.instructions == 3 * 2 + 2**40
    assert (counts.accesses, counts.l1_misses, counts.l1_nonsequential, counts.l2_misses) == (11, 6, 3, 2)


def test_a_region_may_be_empty(path: Path) -> None:
    path.write_bytes(dump([]))
    counts = read_counts(path)
    assert (counts.blocks, counts.instructions, counts.accesses) == ((), 0, 0)


def test_blocks_translated_twice_are_one(path: Path) -> None:
    """The same instructions at another address, and other instructions at the same address, are other blocks."""
    a, b = Block(0x1000, NOP, 3, 10, 5, 2, 1), Block(0x1000, NOP, 4, 1, 1, 1, 1)
    elsewhere, other = Block(0x2000, NOP, 1, 0, 0, 0, 0), Block(0x1000, RET, 1, 0, 0, 0, 0)
    path.write_bytes(dump([a, elsewhere, b, other]))
    assert read_counts(path).blocks == (Block(0x1000, NOP, 7, 11, 6, 3, 2), other, elsewhere)


def test_truncated_anywhere(path: Path) -> None:
    whole = dump([Block(0x1000, NOP + RET, 3, 10, 5, 2, 1)])
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(DeviceError) as error:
            read_counts(path)
        expected = (
            f"{path}: not a file of the counting plugin; delete it and run again"
            if size < 24
            else f"{path}: has {size} bytes where its header says {len(whole)}; delete it and run again"
        )
        assert str(error.value) == expected


def test_lengths_that_do_not_add_up(path: Path) -> None:
    whole = bytearray(dump([Block(0x1000, NOP + RET, 3, 10, 5, 2, 1)]))
    whole[24 + 48] = 1
    path.write_bytes(whole)
    with pytest.raises(DeviceError) as error:
        read_counts(path)
    assert str(error.value) == f"{path}: the blocks' lengths do not add up to 2; delete it and run again"


def test_missing(path: Path) -> None:
    with pytest.raises(DeviceError) as error:
        read_counts(path)
    assert str(error.value) == (
        f"{path}: the plugin wrote no counts; see the guest's log for why (a full disk, or no plugin loaded)"
    )


@pytest.fixture(scope="module")
def program(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return guest.build(toolchain, tmp_path_factory.mktemp("kernels"))


def test_the_plugin_says_why_it_cannot_write(toolchain: Toolchain, program: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    log = guest.start(toolchain, program, missing, ["integer_chain", "10", "0", "1", "0", "cold"])
    assert "/missing/" in log and "cannot be written: No such file or directory" in log


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("l3_ways=4", "l3_ways=4: no such argument; there are out, l1_bytes, l1_ways, l2_bytes, l2_ways and streams"),
        ("l1_ways=0", "l1_ways=0: expected a positive number"),
        ("l1_ways=x", "l1_ways=x: expected a positive number"),
        ("l2_ways=7", "l2_bytes: bytes must be 64 x ways x a power of two"),
    ],
)
def test_arguments_of_the_plugin(
    toolchain: Toolchain, program: Path, tmp_path: Path, argument: str, message: str
) -> None:
    with pytest.raises(AssertionError, match=f"layoutlab counter: {message}"):
        guest.start(toolchain, program, tmp_path, ["integer_chain", "10", "0", "1", "0"], argument)


def test_forked_children_write_their_own(toolchain: Toolchain, program: Path, tmp_path: Path) -> None:
    """What ran before the fork is known to both, what runs after it is counted by each alone."""
    work = ["walk", "512", "64", "3", "0", "cold", "fork", "warm"]
    guest.start(toolchain, program, tmp_path, work)
    mine, other = [read_counts(path) for path in tmp_path.glob("*.counts")]
    assert mine == other
    assert guest.loop(mine).executions == 3 * 512
    assert mine.l1_misses == 0
