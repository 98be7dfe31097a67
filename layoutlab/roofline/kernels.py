"""The kernels that measure a device's peaks: how large they are, and what one call of each does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Of everything that follows: peaks that were measured with other kernels are not these.
VERSION = 1

# Turns of the loop of multiply-adds in one call: a quarter of a millisecond on most CPUs.
TURNS = 1 << 16
# A call goes through its working set until it has moved so many bytes.
BYTES_PER_CALL = 1 << 24
# The bytes that a stream goes through: from less than any first cache, each twice as many where a network's functions
# mostly are, to far more than any cache of a phone or board.
WORKING_SETS = (*(1 << at for at in range(14, 24)), 1 << 25, 1 << 27)
# Vectors that a stream reads from each tensor in one step: as many sums as hide the latency of an addition.
STREAM_VECTORS = 8

# A library's path and (dtype, shape) of each tensor of its `main`.
Call = tuple[str, Sequence[tuple[str, Sequence[int]]]]

FMA, READ, TRIAD = "fma", "read", "triad"
_FLOAT_BYTES = 4
_TENSORS = {READ: 1, TRIAD: 3}


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One call of a kernel: `flop` operations or `bytes` moved, within `working_set_bytes` (0: in registers).

    `library` is the path of the shared library with its `main`, `arguments` are (dtype, shape) of its tensors.
    """

    name: str
    library: str
    arguments: tuple[tuple[str, tuple[int, ...]], ...]
    flop: int = 0
    bytes: int = 0
    working_set_bytes: int = 0


def fma_chains(registers: int) -> int:
    """Independent chains of multiply-adds that a CPU with so many vector registers keeps in them.

    Four registers at least are left for the factors. 12 chains fill two pipelines with a latency of six cycles, 24
    four pipelines with one of six.
    """
    return 24 if registers >= 32 else 12


def kernels(libraries: dict[str, str], floats: int, registers: int, threads: int) -> Iterator[Kernel]:
    """The calls of the kernels in `libraries` (name -> path) for vectors of `floats`, for `threads` threads.

    The multiply-adds come again before each working set: whoever shares a core takes up to half of it, for seconds.
    """
    width = floats * fma_chains(registers)
    arithmetic = Kernel(
        name=FMA,
        library=libraries[FMA],
        arguments=(("float32", (2, floats)), ("float32", (threads, width))),
        flop=2 * threads * TURNS * width,
    )
    width = floats * STREAM_VECTORS
    for wanted_bytes in WORKING_SETS:
        yield arithmetic
        for name, tensors in _TENSORS.items():
            shape = (threads, max(1, wanted_bytes // (tensors * threads * width * _FLOAT_BYTES)), width)
            tensor_bytes = threads * shape[1] * width * _FLOAT_BYTES
            sums = [("float32", (threads, width))] if name == READ else []
            yield Kernel(
                name=name,
                library=libraries[name],
                arguments=(*[("float32", shape)] * tensors, *sums),
                bytes=tensors * tensor_bytes * passes(tensors, tensor_bytes),
                working_set_bytes=wanted_bytes,
            )


def passes(tensors: int, tensor_bytes: int) -> int:
    """How often one call goes through its tensors; the kernels compute the same."""
    return max(1, BYTES_PER_CALL // (tensors * tensor_bytes))
