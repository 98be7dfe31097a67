"""Cycles of a block of instructions on Kryo by LLVM's scheduling model, cached from run to run."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from layoutlab.device.kryo.toolchain import Toolchain
from layoutlab.errors import DeviceError

_WORD_BYTES = 4
# A block's price is what one more repetition costs: (cycles of 2N - cycles of N) / N. Cycles of N / N would charge
# the pipeline's filling to every repetition: 2 to 3 % of a MobileNet at N = 20. The totals of four networks agree to
# 0.01 % between N = 10 and N = 100. A power of two makes prices, and sums of them, exact in floating point.
_ITERATIONS = 16
# What an instruction costs that llvm-mca has no price for (none in code for ARMv8.0): that of an ordinary one.
_UNPRICED_CYCLES = 1.0
_CPU = "kryo"
# Beyond what the core has, so that code which checks for these extensions is still read.
_ATTRIBUTES = "+v8.5a,+fullfp16,+dotprod,+crypto"
_KNOWN_INSTRUCTION = "nop"

# llvm-mca gives every call a latency of 100 cycles. The callee's blocks are priced by themselves, and its address
# is predicted, so that a call costs what a jump does.
_CALL = re.compile(r"^bl(r?)\s")
_UNDECODED = re.compile(r":(\d+):\d+: warning: invalid instruction encoding")
_CYCLES = re.compile(r"^Total Cycles:\s+(\d+)", re.MULTILINE)

_SCHEMA = """create table if not exists prices
    (model text, words blob, cycles real, unpriced integer, primary key (model, words)) without rowid"""
# SQLite takes 999 parameters in one statement at least.
_QUERY_BLOCKS = 500
# How long to wait for another process that writes to the cache.
_LOCK_S = 60.0


class Price(NamedTuple):
    """Cycles of one execution of a block among many; `unpriced` of its instructions cost a flat rate."""

    cycles: float
    unpriced: int


class Pricer:
    """Prices blocks, given by their instructions as they lie in memory. The cache folder may be shared."""

    def __init__(self, toolchain: Toolchain, cache: Path) -> None:
        self._toolchain = toolchain
        self._cache = cache / "prices.sqlite"
        self._known: dict[bytes, Price] = {}
        version = " ".join(_run([*toolchain.llvm_mca, "--version"], "").stdout.split())
        self._model = f"{version} {_CPU} {_ATTRIBUTES} {_ITERATIONS} {_UNPRICED_CYCLES}"

    def price(self, blocks: Iterable[bytes]) -> Mapping[bytes, Price]:
        """The price of each of `blocks` (and of others priced before). Raises DeviceError if LLVM cannot run."""
        new = sorted(set(blocks) - self._known.keys())
        if new:
            with self._open_cache() as cache:
                self._known.update(self._look_up(cache, new))
                unknown = [words for words in new if words not in self._known]
                if unknown:
                    prices = self._compute(unknown)
                    self._keep(cache, prices)
                    self._known.update(prices)
        return self._known

    @contextlib.contextmanager
    def _open_cache(self) -> Iterator[sqlite3.Connection]:
        try:
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(self._cache, timeout=_LOCK_S)) as cache:
                cache.execute(_SCHEMA)
                yield cache
        except (sqlite3.Error, OSError) as error:
            raise DeviceError(
                f"{self._cache}: the cache of block prices cannot be used ({error}); make it writable or delete it"
            ) from error

    def _look_up(self, cache: sqlite3.Connection, blocks: Sequence[bytes]) -> dict[bytes, Price]:
        found: dict[bytes, Price] = {}
        for at in range(0, len(blocks), _QUERY_BLOCKS):
            some = blocks[at : at + _QUERY_BLOCKS]
            marks = ",".join("?" * len(some))
            rows = cache.execute(
                f"select words, cycles, unpriced from prices where model = ? and words in ({marks})",
                (self._model, *some),
            )
            found.update({words: Price(cycles, unpriced) for words, cycles, unpriced in rows})
        return found

    def _keep(self, cache: sqlite3.Connection, prices: Mapping[bytes, Price]) -> None:
        rows = [(self._model, words, *price) for words, price in prices.items()]
        with cache:
            # Another process may have priced the same blocks meanwhile, and came to the same prices.
            cache.executemany("insert or ignore into prices values (?, ?, ?, ?)", rows)

    def _compute(self, blocks: Sequence[bytes]) -> dict[bytes, Price]:
        texts = self._disassemble({word for words in blocks for word in _split(words)})
        programs = [[texts[word] for word in _split(words) if word in texts] for words in blocks]
        cycles = self._cycles(programs)
        if cycles is None:
            unpriceable = self._unpriceable(sorted({text for program in programs for text in program}))
            programs = [[text for text in program if text not in unpriceable] for program in programs]
            cycles = self._cycles(programs)
        if cycles is None:
            raise DeviceError(
                "llvm-mca prices instructions alone but not in blocks; provision the simulated core again"
            )
        prices = {}
        for words, program, each in zip(blocks, programs, cycles, strict=True):
            unpriced = len(words) // _WORD_BYTES - len(program)
            prices[words] = Price(each + unpriced * _UNPRICED_CYCLES, unpriced)
        return prices

    def _disassemble(self, words: Iterable[bytes]) -> dict[bytes, str]:
        """The text of each instruction, ready for llvm-mca. Those that LLVM cannot decode are left out."""
        ordered = sorted(words)
        lines = "".join(" ".join(f"0x{byte:02x}" for byte in word) + "\n" for word in ordered)
        command = [*self._toolchain.llvm_mc, "--disassemble", "-triple=aarch64", f"-mattr={_ATTRIBUTES}"]
        result = _run(command, lines)
        undecoded = {int(line) - 1 for line in _UNDECODED.findall(result.stderr)}
        decoded = [word for at, word in enumerate(ordered) if at not in undecoded]
        texts = [line.strip() for line in result.stdout.splitlines()]
        texts = [text for text in texts if text and text != ".text"]
        if len(texts) != len(decoded):
            raise DeviceError(
                f"llvm-mc printed {len(texts)} instructions where {len(decoded)} were expected; "
                f"provision the simulated core again ({result.stderr.strip()[-200:]})"
            )
        return {word: _CALL.sub(r"b\1 ", text) for word, text in zip(decoded, texts, strict=True)}

    def _cycles(self, programs: Sequence[Sequence[str]]) -> list[float] | None:
        """Cycles of one more repetition of each program, or None if one has an instruction without a price."""
        short, long = self._run_mca(programs, _ITERATIONS), self._run_mca(programs, 2 * _ITERATIONS)
        if short is None or long is None:
            return None
        return [(b - a) / _ITERATIONS for a, b in zip(short, long, strict=True)]

    def _run_mca(self, programs: Sequence[Sequence[str]], iterations: int) -> list[int] | None:
        """Cycles of `iterations` of each program, or None if llvm-mca rejects the lot."""
        regions = [
            "\n".join([f"# LLVM-MCA-BEGIN {at}", *program, "# LLVM-MCA-END", ""])
            for at, program in enumerate(programs)
            if program
        ]
        if not regions:
            return [0] * len(programs)
        command = [*self._toolchain.llvm_mca, "-mtriple=aarch64", f"-mcpu={_CPU}", f"-mattr={_ATTRIBUTES}"]
        command += [f"-iterations={iterations}", "-instruction-info=0", "-resource-pressure=0"]
        result = _run(command, "".join(regions))
        cycles = [int(number) for number in _CYCLES.findall(result.stdout)]
        if result.returncode or len(cycles) != len(regions):
            return None
        each = iter(cycles)
        return [next(each) if program else 0 for program in programs]

    def _unpriceable(self, texts: Sequence[str]) -> set[str]:
        """The instructions that llvm-mca rejects. It stops at the first, so halves are tried until they are found."""
        if self._run_mca([[_KNOWN_INSTRUCTION]], 1) is None:
            raise DeviceError(f"llvm-mca cannot price even a {_KNOWN_INSTRUCTION} for {_CPU}; provision the core again")
        pending, rejected = [list(texts)], set()
        while pending:
            some = pending.pop()
            if self._run_mca([some], 1) is not None:
                continue
            if len(some) == 1:
                rejected.update(some)
            else:
                pending += [some[: len(some) // 2], some[len(some) // 2 :]]
        return rejected


def _split(words: bytes) -> list[bytes]:
    return [words[at : at + _WORD_BYTES] for at in range(0, len(words), _WORD_BYTES)]


def _run(command: Sequence[str], text: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, input=text, capture_output=True, text=True)
    except OSError as error:
        raise DeviceError(
            f"{command[0]}: does not run ({error.strerror}); provision the simulated core again"
        ) from None
