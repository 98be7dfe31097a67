"""Candidates built and measured in warm processes.

The stock LocalBuilder starts fresh workers for each batch of candidates. Here the processes live as long as the
tuning; one that crashes or hangs costs its candidate only, and is replaced by a fork of a server that has TVM
imported already.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from layoutlab.device.base import DeviceKind
from layoutlab.device.kryo.core import remove_leftovers
from layoutlab.engine.relax.tune.candidates import build_candidate, measure_candidate
from layoutlab.engine.relax.tune.simulated import CORE_START_S, simulate_candidate
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm

_TIMEOUT_S = 30.0
_P = TypeVar("_P", bound="_Pool")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A candidate's time in seconds, or one line that says why there is none."""

    seconds: float | None = None
    error: str | None = None


class CandidatePool(Protocol):
    """Gives candidates their times."""

    def __enter__(self) -> CandidatePool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...

    def evaluate(self, candidates: Sequence[meta_schedule.MeasureCandidate]) -> list[Outcome]:
        """Build and measure; one outcome per candidate, in order."""


def open_pool(device_kind: DeviceKind, target: tvm.target.Target, folder: Path) -> CandidatePool:
    """The pool for a kind of device; libraries lie in `folder` while they are needed."""
    return SimulatedPool(target, folder) if device_kind == "kryo" else HostPool(target, folder)


class _Pool:
    """Process pools that end together."""

    def __init__(self, target: tvm.target.Target, folder: Path) -> None:
        self._target, self._folder = target_dict(target), str(folder)
        self._pools: list[ProcessPool] = []

    def _open(self, workers: int) -> ProcessPool:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["layoutlab.engine.relax.tune.candidates"])
        self._pools.append(ProcessPool(max_workers=workers, context=context))
        return self._pools[-1]

    def __enter__(self: _P) -> _P:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for pool in self._pools:
            pool.stop()
            pool.join()


class HostPool(_Pool):
    """Builds the candidates of a batch side by side, then measures them one after the other.

    Nothing else of the tuner runs while a candidate is measured: the device is this machine.
    """

    def __init__(self, target: tvm.target.Target, folder: Path) -> None:
        super().__init__(target, folder)
        self._builders = self._open(os.cpu_count() or 1)
        self._runner = self._open(1)

    def evaluate(self, candidates: Sequence[meta_schedule.MeasureCandidate]) -> list[Outcome]:
        """Build and measure; one outcome per candidate, in order."""
        builds = [
            self._builders.schedule(
                build_candidate,
                args=(tvm.ir.save_json(candidate.sch.mod), self._target, self._folder),
                timeout=_TIMEOUT_S,
            )
            for candidate in candidates
        ]
        libraries = [_outcome(build, "the build") for build in builds]
        return [
            self._measure(path, candidate) if error is None else Outcome(error=error)
            for candidate, (path, error) in zip(candidates, libraries, strict=True)
        ]

    def _measure(self, path: str, candidate: meta_schedule.MeasureCandidate) -> Outcome:
        arguments = [_argument(info) for info in candidate.args_info]
        run = self._runner.schedule(measure_candidate, args=(path, arguments), timeout=_TIMEOUT_S)
        seconds, error = _outcome(run, "the run")
        os.unlink(path)
        return Outcome(seconds=seconds, error=error)


class SimulatedPool(_Pool):
    """Builds and counts candidates side by side, on one simulated core for each processor.

    Counts do not change with what else the machine does, so nothing has to wait for anything.
    """

    def __init__(self, target: tvm.target.Target, folder: Path) -> None:
        super().__init__(target, folder)
        self._cores = self._open(os.cpu_count() or 1)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        super().__exit__(kind, error, at)
        # The processes were stopped, and their cores with them, before these could clean up.
        remove_leftovers()

    def evaluate(self, candidates: Sequence[meta_schedule.MeasureCandidate]) -> list[Outcome]:
        """Build and count; one outcome per candidate, in order."""
        runs = [
            self._cores.schedule(
                simulate_candidate,
                args=(
                    tvm.ir.save_json(candidate.sch.mod),
                    self._target,
                    self._folder,
                    [_argument(info) for info in candidate.args_info],
                ),
                timeout=_TIMEOUT_S + CORE_START_S,
            )
            for candidate in candidates
        ]
        outcomes = [_outcome(run, "the simulated run") for run in runs]
        return [Outcome(seconds=seconds, error=error) for seconds, error in outcomes]


def _argument(info: Any) -> tuple[str, tuple[int, ...]]:
    """(dtype, shape) of one tensor argument of a candidate."""
    _, dtype, shape = info.as_json()
    return str(dtype), tuple(int(extent) for extent in shape)


def _outcome(future: ProcessFuture, what: str) -> tuple[Any, str | None]:
    """(result, None) of a pool future, or (None, one line that says why there is none)."""
    try:
        return future.result(), None
    except FutureTimeout:
        return None, f"{what} took longer than {_TIMEOUT_S:.0f} s"
    except ProcessExpired as error:
        return None, f"{what} crashed its process (exit code {error.exitcode})"
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return None, f"{what} failed: {type(error).__name__}: {lines[-1][:300]}"


def target_dict(target: tvm.target.Target) -> dict[str, Any]:
    """The target as the dict that builds it again (TVM prints derived `feature.` entries that it refuses)."""
    return {key: value for key, value in json.loads(str(target)).items() if not key.startswith("feature")}
