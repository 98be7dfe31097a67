"""A variant's profile as data: its functions with their times, from what was measured or counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layoutlab.device.kryo.cycles import Totals, estimate
from layoutlab.engine.base import Artifact
from layoutlab.engine.provenance import ExecutedFunction, Operator, Provenance
from layoutlab.errors import StageError
from layoutlab.roofline.peaks import Binds, Peaks

# A function is slower than its record promised when it takes this many times as long ...
SLOWER = 1.5
# ... and that costs at least this share of an inference, and this many microseconds: timing a call costs some of them.
SLOWER_SHARE = 0.01
SLOWER_US = 5.0
# From this share of an inference on it is worth saying that a machine interrupts it.
BUSY_SHARE = 0.05


@dataclass(frozen=True, kw_only=True)
class ProfileRow:
    """One executed function of an inference; on a simulated core all calls of a symbol: their costs are not told apart.

    `nodes` are its places in execution order; `ops` (the original operators whose output it computes), `parts` (those
    of which it computes a part) and `transforms` as in `engine.provenance`; `shape` and `layout` are its output's (of
    the first call); `calls` its calls; `time_ms` the time of all of them in one inference, a median where measured;
    `share` that of the end-to-end time; `flop` and `bytes` those of all calls. `task` is its tuning task and `best_us`
    the best time of one call in the tuning records, where it has one; `ratio` how many times that a call takes here.
    `bound_us` is the least time of all calls by the device's peaks, and `binds` what that is of; None without peaks.
    """

    nodes: tuple[int, ...]
    function: str
    ops: tuple[Operator, ...]
    parts: tuple[Operator, ...]
    transforms: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    layout: str | None
    calls: int
    time_ms: float
    share: float
    flop: int
    bytes: int
    task: str | None
    best_us: float | None
    ratio: float | None
    slower: bool
    bound_us: float | None = None
    binds: Binds | None = None

    @property
    def gflops(self) -> float | None:
        """Billions of floating-point operations a second; None where nothing is computed."""
        return self.flop / self.time_ms / 1e6 if self.flop and self.time_ms else None

    @property
    def gigabytes_per_s(self) -> float | None:
        """Billions of bytes a second, each tensor counted once."""
        return self.bytes / self.time_ms / 1e6 if self.time_ms else None

    @property
    def intensity(self) -> float | None:
        """Floating-point operations for each byte; None where nothing is moved."""
        return self.flop / self.bytes if self.bytes else None

    @property
    def of_limit(self) -> float | None:
        """The share of the possible speed that is reached; above 1 where the data is in a nearer cache than assumed."""
        return None if self.bound_us is None or not self.time_ms else self.bound_us / self.time_ms / 1e3


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A variant's profile.

    `rows` are in order of time, longest first; `end_to_end_ms` is the time of whole inferences that were not looked
    into, measured (a median) in the same process, or simulated; `remainder_ms` is what it has besides the functions,
    and may be negative where it was measured, for looking costs time too. `instrumented_ms` is an inference's time
    while it was looked into, None where simulated. `interrupted_ms` is what the functions of an inference took longer
    (median) than the sum of their medians: a machine that does something else interrupts now one, now another.
    `homes` has for each operator the node that computes its output, `removed` for those that none computes why. `raw`
    has the samples that the medians are of. `peaks` are the device's, where they are known.
    """

    variant: str
    device: str
    simulated: bool
    runtime: str
    end_to_end_ms: float
    instrumented_ms: float | None
    interrupted_ms: float
    inferences: int
    rows: tuple[ProfileRow, ...]
    operators: tuple[Operator, ...]
    homes: dict[int, int]
    removed: dict[int, str]
    raw: dict[str, Any]
    peaks: Peaks | None = None

    @property
    def bounds_ms(self) -> float | None:
        """The sum of the functions' bounds: the least time of an inference that is made of them. None without peaks."""
        return None if self.peaks is None else sum(row.bound_us or 0.0 for row in self.rows) / 1e3

    @property
    def functions_ms(self) -> float:
        """The sum over all functions; not a latency."""
        return sum(row.time_ms for row in self.rows)

    @property
    def remainder_ms(self) -> float:
        """What an inference takes besides its functions."""
        return self.end_to_end_ms - self.functions_ms

    @property
    def busy(self) -> bool:
        """Whether the machine did so much else that the end-to-end time says little."""
        return self.interrupted_ms > BUSY_SHARE * self.end_to_end_ms

    @property
    def flop(self) -> int:
        """Floating-point operations of one inference."""
        return sum(row.flop for row in self.rows)


def measured_profile(
    variant: str, device: str, artifact: Artifact, taken: Mapping[str, Any], peaks: Peaks | None = None
) -> Profile:
    """The profile from what `device.function_times` measured, with bounds where the device's peaks are given.

    Raises StageError when other functions ran than were built.
    """
    provenance = _provenance(artifact)
    expected = [function.function for function in provenance.functions]
    if taken["functions"] != expected:
        raise StageError("profile", _difference(taken["functions"], expected))
    samples_ms = np.asarray(taken["times_us"]) / 1e3
    times_ms = np.median(samples_ms, axis=0)
    end_to_end_ms = float(np.median(taken["end_to_end_ms"]))
    build = _RowBuilder(artifact, end_to_end_ms, peaks)
    rows = [build.row([function], float(ms)) for function, ms in zip(provenance.functions, times_ms, strict=True)]
    return Profile(
        variant=variant,
        device=device,
        simulated=False,
        runtime=taken["runtime"],
        end_to_end_ms=end_to_end_ms,
        instrumented_ms=float(np.median(taken["instrumented_ms"])),
        interrupted_ms=max(0.0, float(np.median(samples_ms.sum(axis=1)) - times_ms.sum())),
        inferences=len(taken["end_to_end_ms"]),
        rows=_by_time(rows),
        operators=provenance.operators,
        homes=provenance.homes,
        removed=provenance.removed,
        peaks=peaks,
        raw={name: taken[name] for name in ("times_us", "end_to_end_ms", "instrumented_ms", "conditions")},
    )


def simulated_profile(
    variant: str, device: str, artifact: Artifact, counted: Mapping[str, Any], peaks: Peaks | None = None
) -> Profile:
    """The profile from the counts of a simulated inference, a sample of `device.base.Device`, which sums exactly."""
    provenance = _provenance(artifact)
    end_to_end_ms = estimate(Totals(**counted["counts"])).ms
    costs_ms = {
        found["name"]: estimate(Totals(**{key: value for key, value in found.items() if key != "name"})).ms
        for found in counted["functions"]
    }
    by_symbol: dict[str, list[ExecutedFunction]] = defaultdict(list)
    for function in provenance.functions:
        by_symbol[function.function].append(function)
    missing = [name for name in by_symbol if name not in costs_ms]
    if missing:
        raise StageError("profile", f"the library has functions that did not run: {', '.join(missing)}")
    build = _RowBuilder(artifact, end_to_end_ms, peaks)
    return Profile(
        variant=variant,
        device=device,
        simulated=True,
        runtime=counted["runtime"],
        end_to_end_ms=end_to_end_ms,
        instrumented_ms=None,
        interrupted_ms=0.0,
        inferences=1,
        rows=_by_time([build.row(calls, costs_ms[name]) for name, calls in by_symbol.items()]),
        operators=provenance.operators,
        homes=provenance.homes,
        removed=provenance.removed,
        peaks=peaks,
        raw={"functions": counted["functions"]},
    )


def _provenance(artifact: Artifact) -> Provenance:
    assert artifact.provenance is not None
    return artifact.provenance


def _difference(found: Sequence[str], expected: Sequence[str]) -> str:
    """Where the functions that ran differ from those that the library was built of."""
    at = next((at for at, names in enumerate(zip(found, expected, strict=False)) if names[0] != names[1]), None)
    if at is None:
        return f"{len(found)} functions ran, and the library was built of {len(expected)}"
    return f"function {at} that ran is {found[at]}, and {expected[at]} was built in its place"


def _by_time(rows: Sequence[ProfileRow]) -> tuple[ProfileRow, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.time_ms, row.nodes)))


class _RowBuilder:
    """Makes rows from calls of one function and the time that they take together."""

    def __init__(self, artifact: Artifact, end_to_end_ms: float, peaks: Peaks | None) -> None:
        self._operators = _provenance(artifact).operators
        self._best_us = {task.name: task.best_us for task in artifact.tasks}
        self._end_to_end_ms = end_to_end_ms
        self._peaks = peaks

    def row(self, calls: Sequence[ExecutedFunction], time_ms: float) -> ProfileRow:
        first = calls[0]
        best_us = None if first.task is None else self._best_us.get(first.task)
        ratio = None if not best_us else time_ms * 1e3 / len(calls) / best_us
        lost_us = 0.0 if best_us is None else time_ms * 1e3 - len(calls) * best_us
        worth = max(SLOWER_SHARE * self._end_to_end_ms * 1e3, SLOWER_US)
        bounds = [] if self._peaks is None else [self._peaks.bound(call.flop, call.bytes) for call in calls]
        return ProfileRow(
            nodes=tuple(call.node for call in calls),
            function=first.function,
            ops=tuple(self._operators[op] for call in calls for op in call.ops),
            parts=tuple(self._operators[op] for call in calls for op in call.parts),
            transforms=tuple(dict.fromkeys(name for call in calls for name in call.transforms)),
            shape=first.shape,
            dtype=first.dtype,
            layout=first.layout,
            calls=len(calls),
            time_ms=time_ms,
            share=time_ms / self._end_to_end_ms,
            flop=sum(call.flop for call in calls),
            bytes=sum(call.bytes for call in calls),
            task=first.task,
            best_us=best_us,
            ratio=ratio,
            slower=ratio is not None and ratio > SLOWER and lost_us > worth,
            bound_us=sum(bound.us for bound in bounds) if bounds else None,
            # The calls of a function differ by their weights alone.
            binds=bounds[0].binds if bounds else None,
        )
