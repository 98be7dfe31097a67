"""Where candidates get their times: built by `builders`, then measured on this machine or counted on simulated cores.

The stock LocalBuilder starts fresh workers for each batch of candidates, and the stock runner measures while others
are built. Here the processes live as long as the tuning, and nothing runs beside a candidate that is measured.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

from pebble import concurrent

from layoutlab.device.base import DeviceKind
from layoutlab.device.kryo.core import remove_leftovers
from layoutlab.engine.base import TuningOptions
from layoutlab.engine.relax.tune.builders import open_builders
from layoutlab.engine.relax.tune.candidates import Arguments, Timing, measure_candidate
from layoutlab.engine.relax.tune.executors import STALL_S, WarmExecutor, as_finished, processors
from layoutlab.engine.relax.tune.simulated import SIMULATION_S, simulate_candidate
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm

_P = TypeVar("_P", bound="BuildingPool")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A candidate's time in seconds, or one line that says why there is none."""

    seconds: float | None = None
    error: str | None = None


# Waits for the outcomes of a batch: one per candidate, in order.
Collect = Callable[[], list[Outcome]]


class CandidatePool(Protocol):
    """Gives candidates their times."""

    @property
    def in_flight(self) -> int:
        """How many batches may be under way at once: one where nothing may run while a candidate is measured."""

    def __enter__(self) -> CandidatePool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...

    def submit(self, candidates: Sequence[meta_schedule.MeasureCandidate]) -> Collect:
        """Begin to build and measure a batch.

        Neither this nor the function it returns raises for what is wrong with a candidate; both raise StageError when
        no candidate can be built any more.
        """


def open_pool(
    device_kind: DeviceKind, target: tvm.target.Target, folder: Path, options: TuningOptions
) -> CandidatePool:
    """The pool for this machine or the simulated core; files lie in `folder` while they are needed."""
    pool = SimulatedPool if device_kind == "kryo" else HostPool
    return pool(target, folder, options)


class BuildingPool:
    """What ends together: the builders, and the processes that run what they built."""

    def __init__(
        self, target: tvm.target.Target, folder: Path, options: TuningOptions, device_kind: DeviceKind
    ) -> None:
        self._folder = str(folder)
        self._open = contextlib.ExitStack()
        self._builders = self._open.enter_context(
            open_builders(options.workers, target_dict(target), device_kind, self._folder, options.passes)
        )

    def __enter__(self: _P) -> _P:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()


class HostPool(BuildingPool):
    """Builds the candidates of a batch side by side, then measures them one after the other.

    Nothing else of the tuner runs while a candidate is measured: the device is this machine.
    """

    in_flight = 1

    def __init__(self, target: tvm.target.Target, folder: Path, options: TuningOptions) -> None:
        super().__init__(target, folder, options, "host")
        self._timing = Timing(
            repeats=options.repeats, min_repeat_ms=options.min_repeat_ms, cold_cache=options.cold_cache
        )
        self._cores, self._threads = options.cores, threads_of(target)
        self._runner = WarmExecutor(1, self._timing.timeout_s, self._folder)
        self._open.callback(self._runner.shutdown, cancel_futures=True)

    def submit(self, candidates: Sequence[meta_schedule.MeasureCandidate]) -> Collect:
        """Begin to build; measuring begins with the wait for the outcomes."""
        builds = self._builders.start(candidates)
        arguments = [arguments_of(candidate) for candidate in candidates]
        return lambda: self._measure(builds, arguments)

    def _measure(self, builds: Sequence[Future[bytes]], arguments: Sequence[Arguments]) -> list[Outcome]:
        # All are built before the first is measured.
        built = sorted(self._builders.as_finished(builds), key=lambda item: item[0])
        return [
            Outcome(error=error) if library is None else self._measure_one(library, arguments[index])
            for index, library, error in built
        ]

    def _measure_one(self, library: bytes, arguments: Arguments) -> Outcome:
        run = self._runner.submit(measure_candidate, library, arguments, self._timing, self._cores, self._threads)
        ((_, seconds, error),) = as_finished([run], "the run", self._timing.timeout_s + STALL_S)
        return Outcome(seconds=seconds, error=error)


class SimulatedPool(BuildingPool):
    """Builds and counts candidates side by side, on one simulated core for each processor.

    Counts do not change with what else the machine does, so nothing has to wait for anything.
    """

    in_flight = 2

    def __init__(self, target: tvm.target.Target, folder: Path, options: TuningOptions) -> None:
        super().__init__(target, folder, options, "kryo")
        # The processes are stopped, and their cores with them, before these could clean up.
        self._open.callback(remove_leftovers)
        # Not in the folder: counts depend on the length of the path that a core lies at.
        self._cores = WarmExecutor(processors(), SIMULATION_S)
        self._open.callback(self._cores.shutdown, cancel_futures=True)

    def submit(self, candidates: Sequence[meta_schedule.MeasureCandidate]) -> Collect:
        """Begin to build and count."""
        builds = self._builders.start(candidates)
        # A thread carries the libraries from the builders to the cores while the search goes on.
        count = concurrent.thread(daemon=True)(self._count)
        batch = count(builds, [arguments_of(candidate) for candidate in candidates])
        # Every wait within it has an end: one for each build and one for each count.
        return lambda: batch.result(timeout=2 * STALL_S * (1 + len(candidates)) * self.in_flight)

    def _count(self, builds: Sequence[Future[bytes]], arguments: Sequence[Arguments]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        places, runs = [], []
        for index, library, error in self._builders.as_finished(builds):
            if library is None:
                outcomes[index] = Outcome(error=error)
            else:
                places.append(index)
                runs.append(self._cores.submit(simulate_candidate, library, arguments[index], self._folder))
        for number, seconds, error in as_finished(runs, "the simulated run", SIMULATION_S + STALL_S):
            outcomes[places[number]] = Outcome(seconds=seconds, error=error)
        return [outcomes[index] for index in range(len(builds))]


def arguments_of(candidate: meta_schedule.MeasureCandidate) -> Arguments:
    """(dtype, shape) of the tensors of a candidate."""
    described = [info.as_json() for info in candidate.args_info]
    return [(str(dtype), tuple(int(extent) for extent in shape)) for _, dtype, shape in described]


def threads_of(target: tvm.target.Target) -> int:
    """How many threads the target's code runs with."""
    return int(target.attrs.get("num-cores", 1))


def target_dict(target: tvm.target.Target) -> dict[str, Any]:
    """The target as the dict that builds it again (TVM prints derived `feature.` entries that it refuses)."""
    return {key: value for key, value in json.loads(str(target)).items() if not key.startswith("feature")}
