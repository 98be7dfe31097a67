"""Who builds the candidates: warm processes of this machine, or the workers of a dask cluster."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from layoutlab.device.base import DeviceKind
from layoutlab.engine.base import USUAL_PASSES, PassOptions
from layoutlab.engine.relax.tune.candidates import build_candidate
from layoutlab.engine.relax.tune.cluster import Cluster, build_on_worker
from layoutlab.engine.relax.tune.executors import WarmExecutor, as_finished, processors
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm

_BUILD_S = 30.0


class Builders:
    """Turns candidates into the bytes of shared libraries, side by side."""

    def __init__(
        self,
        executor: Executor,
        build: Callable[..., bytes],
        target: dict[str, Any],
        device_kind: DeviceKind,
        require_alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._executor, self._build = executor, build
        self._target, self._device_kind = target, device_kind
        self._require_alive = require_alive

    def start(self, candidates: Sequence[meta_schedule.MeasureCandidate]) -> list[Future[bytes]]:
        """Begin to build candidates; see `as_finished`."""
        return [
            self._executor.submit(self._build, tvm.ir.save_json(candidate.sch.mod), self._target, self._device_kind)
            for candidate in candidates
        ]

    def as_finished(self, builds: Sequence[Future[bytes]]) -> Iterator[tuple[int, bytes | None, str | None]]:
        """(index, library, None) of each build as it finishes, or (index, None, why there is none).

        Raises StageError when there is nobody left to build.
        """
        return as_finished(builds, "the build", require_alive=self._require_alive)


@contextlib.contextmanager
def open_builders(
    workers: str | None,
    target: dict[str, Any],
    device_kind: DeviceKind,
    folder: str,
    passes: PassOptions = USUAL_PASSES,
) -> Iterator[Builders]:
    """Builders on this machine, or at the dask scheduler `workers` (dask://host:port); files lie in `folder` meanwhile.

    Raises StageError when the cluster cannot be used; see `Cluster`.
    """
    if workers is not None:
        with Cluster(workers, device_kind) as cluster:
            build = functools.partial(build_on_worker, passes=passes)
            yield Builders(cluster.executor(), build, target, device_kind, cluster.require_workers)
        return
    executor = WarmExecutor(processors(), _BUILD_S, folder)
    try:
        yield Builders(executor, functools.partial(build_candidate, passes=passes), target, device_kind)
    finally:
        executor.shutdown(cancel_futures=True)
