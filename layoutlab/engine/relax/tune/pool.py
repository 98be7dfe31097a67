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
from typing import Any

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from layoutlab.engine.relax.tune.candidates import build_candidate, measure_candidate
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm

_TIMEOUT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A candidate's time in seconds, or one line that says why there is none."""

    seconds: float | None = None
    error: str | None = None


class CandidatePool:
    """Builds the candidates of a batch side by side, then measures them one after the other.

    Nothing else of the tuner runs while a candidate is measured: the device is this machine.
    """

    def __init__(self, target: tvm.target.Target, folder: Path) -> None:
        self._target, self._folder = target_dict(target), folder
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["layoutlab.engine.relax.tune.candidates"])
        self._builders = ProcessPool(max_workers=os.cpu_count() or 1, context=context)
        self._runner = ProcessPool(max_workers=1, context=context)

    def __enter__(self) -> CandidatePool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for pool in (self._builders, self._runner):
            pool.stop()
            pool.join()

    def evaluate(self, candidates: Sequence[meta_schedule.MeasureCandidate]) -> list[Outcome]:
        """Build and measure; one outcome per candidate, in order."""
        builds = [
            self._builders.schedule(
                build_candidate,
                args=(tvm.ir.save_json(candidate.sch.mod), self._target, str(self._folder)),
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
