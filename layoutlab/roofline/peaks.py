"""What a device can do at most, and how long work takes it at least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from layoutlab.roofline.kernels import FMA

Binds = Literal["compute", "memory"]
# Multiply-adds in registers take the same time again and again; a machine where they do not is no quiet one.
_BUSY_SPREAD = 0.5


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The bandwidth of one kind of stream, in billions of bytes a second, through `working_set_bytes`.

    None: through any number of bytes. `spread` is how much longer the slowest repeat took than the fastest, as a share;
    None where nothing was measured.
    """

    name: str
    working_set_bytes: int | None
    gigabytes_per_s: float
    spread: float | None


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The least time that some work takes: that of its arithmetic, or that of its bytes if they take longer."""

    compute_us: float
    memory_us: float

    @property
    def us(self) -> float:
        """Microseconds."""
        return max(self.compute_us, self.memory_us)

    @property
    def binds(self) -> Binds:
        """Which of the two it is."""
        return "compute" if self.compute_us > self.memory_us else "memory"


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """Peaks of a device for float32, of so many threads and `vector_floats` in a vector.

    `gflops` are billions of operations a second, a multiply-add being two; `spread` as in `Stream`; `streams` from the
    smallest working set to the largest. `sources` say where stated peaks are from; measured ones have none.
    """

    device: str
    threads: int
    vector_floats: int
    gflops: float
    spread: float | None
    streams: tuple[Stream, ...]
    sources: tuple[str, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether they were measured on the device."""
        return not self.sources

    @property
    def busy(self) -> bool:
        """Whether they were measured on a machine that did something else as well, and may be higher."""
        return self.spread is not None and self.spread > _BUSY_SPREAD

    def gigabytes_per_s(self, working_set_bytes: int) -> float:
        """The bandwidth for work on so many bytes: the highest of all streams through as many or more.

        What goes through more bytes than any stream has the bandwidth of the longest.
        """
        longest = max(stream.working_set_bytes or working_set_bytes for stream in self.streams)
        least = min(working_set_bytes, longest)
        return max(
            stream.gigabytes_per_s
            for stream in self.streams
            if stream.working_set_bytes is None or stream.working_set_bytes >= least
        )

    def bound(self, flop: int, moved_bytes: int) -> Bound:
        """The bound of one call of a function; `moved_bytes` has each tensor once."""
        return Bound(
            compute_us=flop / self.gflops / 1e3, memory_us=moved_bytes / self.gigabytes_per_s(moved_bytes) / 1e3
        )


def measured_peaks(device: str, threads: int, taken: Mapping[str, Any]) -> Peaks:
    """The peaks from an event of `roofline.measure`: the fastest repeat of each kernel counts."""
    fmas = [kernel for kernel in taken["kernels"] if kernel["name"] == FMA]
    fma_samples_s = [seconds for kernel in fmas for seconds in kernel["samples_s"]]
    return Peaks(
        device=device,
        threads=threads,
        vector_floats=taken["vector_floats"],
        gflops=fmas[0]["flop"] / min(fma_samples_s) / 1e9,
        spread=_spread(fma_samples_s),
        streams=tuple(
            Stream(
                name=kernel["name"],
                working_set_bytes=kernel["working_set_bytes"],
                gigabytes_per_s=kernel["bytes"] / min(kernel["samples_s"]) / 1e9,
                spread=_spread(kernel["samples_s"]),
            )
            for kernel in taken["kernels"]
            if kernel["name"] != FMA
        ),
    )


def _spread(samples_s: Sequence[float]) -> float:
    return max(samples_s) / min(samples_s) - 1
