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
from layoutlab.process import Worker
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
            try:
                yield leased
            except Exception:
                leased.release()
                raise
            # Not after an interrupt, which does not wait for what the core is at.
            leased.release()

    def compute_outputs(self, runner: Mapping[str, Any], inputs: Path, outputs: Path, log: Path) -> dict[str, Any]:
        """See `device.base.Device`."""
        with self.lease(log) as leased:
            return leased.compute_outputs(runner, inputs, outputs, log)


@dataclass(frozen=True)
class LeasedCore:
    """One core for everything, for starting one takes seconds; it starts when it is needed.

    What crashes it costs its own row: the next starts another.
    """

    worker: Worker
    id: None = None

    def release(self) -> None:
        """End the core; without this its folder would stay behind until another starts."""
        if self.worker.alive:
            self.worker.do("release_core", {}, timeout_s=_TIMEOUT_S)

    def compute_outputs(self, runner: Mapping[str, Any], inputs: Path, outputs: Path, log: Path) -> dict[str, Any]:
        """See `device.base.Leased`."""
        arguments = {"runner": dict(runner), "inputs": str(inputs), "outputs": str(outputs)}
        return self._do("simulate_outputs", arguments)

    def take_samples(self, runner: Mapping[str, Any], inputs: Path, measure: MeasureSpec, log: Path) -> dict[str, Any]:
        """See `device.base.Leased`. One inference is counted, whatever `measure` says: another gives the same."""
        return self._do("simulate_inference", {"runner": dict(runner), "inputs": str(inputs)})

    def _do(self, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return dict(self.worker.do(verb, arguments, timeout_s=_TIMEOUT_S))
