"""The simulated Kryo core as a device of experiments."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layoutlab.device.base import DeviceKind, Leased
from layoutlab.device.kryo.constants import CLOCK_GHZ, PENALTY
from layoutlab.device.kryo.toolchain import Toolchain
from layoutlab.process import run_job
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

    @property
    def id(self) -> None:
        """There is only one."""

    def lease(self, log: Path, prefer: str | None = None) -> AbstractContextManager[Leased]:
        """See `device.base.Device`."""
        return nullcontext(self)

    def compute_outputs(self, runner: Mapping[str, Any], inputs: Path, outputs: Path, log: Path) -> dict[str, Any]:
        """See `device.base.Device`."""
        arguments = {"runner": dict(runner), "inputs": str(inputs), "outputs": str(outputs)}
        return dict(run_job("simulate_outputs", arguments, log=log, timeout_s=_TIMEOUT_S))

    def take_samples(self, runner: Mapping[str, Any], inputs: Path, measure: MeasureSpec, log: Path) -> dict[str, Any]:
        """See `device.base.Device`. One inference is counted, whatever `measure` says: another gives the same."""
        arguments = {"runner": dict(runner), "inputs": str(inputs)}
        return dict(run_job("simulate_inference", arguments, log=log, timeout_s=_TIMEOUT_S))
