"""What the plugin counted in one region, block by block (counter.c counts it and writes it)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from layoutlab.errors import DeviceError

# The file: the header, one record for each block, then the instructions of all blocks. counter.c has the same.
_MAGIC = b"LLCOUNT1"
_HEADER = np.dtype([("magic", "S8"), ("blocks", "<u8"), ("words", "<u8")])
_RECORD = np.dtype(
    [
        ("vaddr", "<u8"),
        ("executions", "<u8"),
        ("accesses", "<u8"),
        ("l1_misses", "<u8"),
        ("l1_nonsequential", "<u8"),
        ("l2_misses", "<u8"),
        ("words", "<u8"),
    ]
)
_WORD_BYTES = 4


class Block(NamedTuple):
    """Instructions that run one after the other, from `vaddr` on, and what became of them in the region.

    `words` are the instructions as they lie in memory, 4 bytes each. `accesses` counts lines touched by loads and
    stores, as qemu does them: 16 bytes are two accesses of 8, and one that crosses a line counts twice.
    `l1_nonsequential` are those L1 misses that the prefetcher does not foresee. (A tuple: there are thousands.)
    """

    vaddr: int
    words: bytes
    executions: int
    accesses: int
    l1_misses: int
    l1_nonsequential: int
    l2_misses: int


@dataclass(frozen=True)
class Counts:
    """The blocks that ran in a region, each (address and instructions) once, by address."""

    blocks: tuple[Block, ...]

    @property
    def instructions(self) -> int:
        """Instructions executed."""
        return sum(block.executions * (len(block.words) // _WORD_BYTES) for block in self.blocks)

    @property
    def accesses(self) -> int:
        """Lines touched by loads and stores."""
        return sum(block.accesses for block in self.blocks)

    @property
    def l1_misses(self) -> int:
        """Touched lines that L1 did not have."""
        return sum(block.l1_misses for block in self.blocks)

    @property
    def l1_nonsequential(self) -> int:
        """L1 misses that the prefetcher does not foresee."""
        return sum(block.l1_nonsequential for block in self.blocks)

    @property
    def l2_misses(self) -> int:
        """Touched lines that neither cache had."""
        return sum(block.l2_misses for block in self.blocks)


def read_counts(path: Path) -> Counts:
    """Read the file that the plugin wrote. Raises DeviceError when there is none or it is no whole one."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DeviceError(
            f"{path}: the plugin wrote no counts; see the guest's log for why (a full disk, or no plugin loaded)"
        ) from None
    if len(data) < _HEADER.itemsize or not data.startswith(_MAGIC):
        raise DeviceError(f"{path}: not a file of the counting plugin; delete it and run again")
    header = np.frombuffer(data, _HEADER, count=1)[0]
    blocks, words = int(header["blocks"]), int(header["words"])
    expected = _HEADER.itemsize + blocks * _RECORD.itemsize + words * _WORD_BYTES
    if len(data) != expected:
        raise DeviceError(f"{path}: has {len(data)} bytes where its header says {expected}; delete it and run again")
    records = np.frombuffer(data, _RECORD, count=blocks, offset=_HEADER.itemsize)
    if int(records["words"].sum()) != words:
        raise DeviceError(f"{path}: the blocks' lengths do not add up to {words}; delete it and run again")
    return Counts(_merge(_blocks(records, data[len(data) - words * _WORD_BYTES :])))


def _blocks(records: np.ndarray, words: bytes) -> Iterable[Block]:
    ends = np.cumsum(records["words"]).astype(int) * _WORD_BYTES
    start = 0
    for record, end in zip(records.tolist(), ends.tolist(), strict=True):
        vaddr, *counts, _ = record
        yield Block(vaddr, words[start:end], *counts)
        start = end


def _merge(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """One block for each address and instructions: qemu may have translated it more than once."""
    merged: dict[tuple[int, bytes], Block] = {}
    for block in blocks:
        key = block[:2]
        seen = merged.get(key)
        merged[key] = block if seen is None else Block(*key, *(a + b for a, b in zip(seen[2:], block[2:], strict=True)))
    return tuple(merged[key] for key in sorted(merged))
