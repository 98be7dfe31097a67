"""Candidates built by the workers of a dask cluster. Only this module knows dask, which is an extra."""

from __future__ import annotations

import platform
import threading
from concurrent.futures import Executor
from types import TracebackType
from typing import Any

from layoutlab.baseline.tflite import versions
from layoutlab.device.base import DeviceKind
from layoutlab.engine.base import USUAL_PASSES, PassOptions
from layoutlab.errors import StageError, first_message

# For the scheduler to answer, and for one worker to be there.
_CONNECT_S = 10.0
# For a worker to import TVM and say what it is.
_FACTS_S = 120.0
# What a worker needs as it is here: another TVM reads another form of modules, and links for another runtime.
_SAME = ("apache-tvm", "apache-tvm-ffi")

_ONE_AT_A_TIME = threading.Lock()


def build_on_worker(
    module_json: str, target: dict[str, Any], device_kind: DeviceKind, passes: PassOptions = USUAL_PASSES
) -> bytes:
    """`build_candidate` on a worker of the cluster, one at a time: a worker's threads share one TVM."""
    from layoutlab.engine.relax.tune.candidates import build_candidate

    with _ONE_AT_A_TIME:
        return build_candidate(module_json, target, device_kind, passes)


def builder_facts(device_kind: DeviceKind) -> dict[str, str]:
    """What matters of a machine that builds candidates. Raises where it cannot link for the kind of device."""
    from layoutlab.engine.relax.tune import candidates  # imports TVM, which has to start there

    candidates.linker_for(device_kind)
    found = versions()
    return {**{name: found[name] for name in _SAME}, "processor": platform.machine()}


class Cluster:
    """A connection with a dask scheduler, `address` being dask://host:port.

    Opening it raises StageError when dask is not installed here, when nobody answers at the address, when there are
    no workers, or when a worker has not what building takes: layoutlab, TVM as it is here, a linker for the device.
    """

    def __init__(self, address: str, device_kind: DeviceKind) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise StageError(
                "tune", f"tuning.workers: {address} needs dask, which is not installed: pip install 'layoutlab[dask]'"
            ) from error
        self._address = address
        try:
            self._client = Client(address.replace("dask://", "tcp://"), timeout=_CONNECT_S, set_as_default=False)
        except Exception as error:
            raise StageError(
                "tune",
                f"tuning.workers: no dask scheduler answers at {address}. Start one there, dask scheduler, or leave "
                "tuning.workers out to build on this machine",
            ) from error
        try:
            self.require_workers()
            self._require_same(device_kind)
        except BaseException:
            self._client.close()
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # With it go the calls that nobody waits for any more.
        self._client.close()

    def executor(self) -> Executor:
        """The cluster as an executor. What a lost worker was doing is done again by another one."""
        executor: Executor = self._client.get_executor(pure=False)
        return executor

    def require_workers(self) -> None:
        """Raise StageError when the scheduler does not answer, or has no workers."""
        try:
            self._client.wait_for_workers(1, timeout=_CONNECT_S)
        except TimeoutError as error:
            raise StageError(
                "tune",
                f"tuning.workers: the dask scheduler at {self._address} has no workers. Start some, dask worker "
                f"{self._address.removeprefix('dask://')}, and run again: the run goes on where it was",
            ) from error
        except Exception as error:
            raise StageError(
                "tune",
                f"tuning.workers: the dask scheduler at {self._address} does not answer any more. Start it again, and "
                "run again: the run goes on where it was",
            ) from error

    def _require_same(self, device_kind: DeviceKind) -> None:
        """Raise StageError naming the first worker that cannot build what this machine, or its device, can load."""
        here = builder_facts(device_kind)
        workers = sorted(self._client.scheduler_info(n_workers=-1)["workers"])
        asked = [self._client.submit(builder_facts, device_kind, workers=[name], pure=False) for name in workers]
        for name, answer in zip(workers, asked, strict=True):
            try:
                there = answer.result(timeout=_FACTS_S)
            except TimeoutError as error:
                raise StageError(
                    "tune", f"tuning.workers: the dask worker {name} gave no sign of life for {_FACTS_S:.0f} s"
                ) from error
            except Exception as error:
                raise StageError(
                    "tune",
                    f"tuning.workers: the dask worker {name} cannot build: {type(error).__name__}: "
                    f"{first_message(error)}. It needs layoutlab with apache-tvm {here['apache-tvm']}",
                ) from error
            different = [f"{fact} {there[fact]} (here {here[fact]})" for fact in here if there[fact] != here[fact]]
            if different:
                raise StageError(
                    "tune",
                    f"tuning.workers: the dask worker {name} has {', '.join(different)}. Both sides need the same",
                )
