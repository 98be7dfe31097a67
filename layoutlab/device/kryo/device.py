"""The simulated Kryo core as a device of experiments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layoutlab.device.base import DeviceKind
from layoutlab.device.kryo.constants import CLOCK_GHZ, PENALTY
from layoutlab.device.kryo.toolchain import Toolchain
from layoutlab.process import Worker, run_job
from layoutlab.spec.models import MeasureSpec

# Silence beyond this means that qemu hangs: the largest networks take some minutes.
_TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class KryoDevice:
    """Runs artifacts and TFLite on the simulated core, each job with a core of its own, and answers in cycles."""

    toolchain: Toolchain
    name: str = f"simulated Kryo 280 gold core at {CLOCK_GHZ} GHz"
    kind: DeviceKind = "kryo"
    simulated: bool = True

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the parts that cycles depend on."""
        shown = ("qemu-user", "llvm", "libc6", "python3", "apache-tvm", "ai-edge-litert", "numpy")
        versions = self.toolchain.versions
        found = {f"core: {name}": versions[name] for name in shown if name in versions}
        return {**found, "core: model": f"{self.toolchain.folder.name}, penalty {PENALTY:g}"}

    @contextlib.contextmanager
    def lease(self, log: Path, prefer: str | None = None) -> Iterator[LeasedCore]:
        """See `device.base.Device`."""
        with Worker(log) as worker:
            leased = LeasedCore(worker)
            yield leased
            leased.release()

    def compute_outputs(self, runner: Mapping[str, Any], inputs: Path, outputs: Path, log: Path) -> dict[str, Any]:
        """See `device.base.Device`."""
        arguments = {"runner": dict(runner), "inputs": str(inputs), "outputs": str(outputs)}
        return dict(run_job("simulate_outputs", arguments, log=log, timeout_s=_TIMEOUT_S))


class LeasedCore:
    """One core for everything, for starting one takes seconds; it starts when it is needed.

    What crashes it costs its own row: the next starts another.
    """

    id = None

    def __init__(self, worker: Worker) -> None:
        self._worker, self._holds = worker, False

    def release(self) -> None:
        """End the core; without this its worker would leave its folder behind."""
        if self._holds and self._worker.alive:
            self._worker.do("release_core", {}, timeout_s=_TIMEOUT_S)

    def compute_outputs(self, runner: Mapping[str, Any], inputs: Path, outputs: Path, log: Path) -> dict[str, Any]:
        """See `device.base.Leased`."""
        arguments = {"runner": dict(runner), "inputs": str(inputs), "outputs": str(outputs)}
        return self._do("simulate_outputs", arguments)

    def take_samples(self, runner: Mapping[str, Any], inputs: Path, measure: MeasureSpec, log: Path) -> dict[str, Any]:
        """See `device.base.Leased`. One inference is counted, whatever `measure` says: another gives the same."""
        return self._do("simulate_inference", {"runner": dict(runner), "inputs": str(inputs)})

    def _do(self, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if not self._holds:
            self._worker.do("hold_core", {}, timeout_s=_TIMEOUT_S)
            self._holds = True
        return dict(self._worker.do(verb, arguments, timeout_s=_TIMEOUT_S))
