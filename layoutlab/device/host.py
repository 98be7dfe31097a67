"""This machine as a device: what it is, and which target its code needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layoutlab.device.base import DeviceKind, Leased, longest_s, profile_arguments, sample_arguments
from layoutlab.process import run_job
from layoutlab.roofline.kernels import Call
from layoutlab.spec.models import MeasureSpec

# A sample job is silent while it measures; this much over its own time means that it hangs.
_GRACE_S = 120.0


def llvm_target() -> dict[str, Any]:
    """The target of this machine as LLVM names it. Imports TVM: for worker processes.

    With AVX-512, LLVM still prefers 256-bit vectors on most CPUs; TFLite's kernels do not, so the target lifts
    the preference. On a Xeon the tuned 1x1 convolutions of MobileNetV3 took 25 % less time for it.
    """
    import tvm
    from tvm.target import codegen

    target: dict[str, Any] = {"kind": "llvm", "mcpu": str(codegen.llvm_get_system_cpu())}
    if codegen.llvm_cpu_has_features("avx512f", tvm.target.Target(target)):
        target["mattr"] = ["-prefer-256-bit"]
    return target


@dataclass(frozen=True)
class HostDevice:
    """Runs artifacts and the TFLite baseline on this machine, each job in a fresh process."""

    name: str
    kind: DeviceKind = "host"
    simulated: bool = False

    @property
    def versions(self) -> dict[str, str]:
        """None but the packages of this machine."""
        return {}

    @property
    def id(self) -> None:
        """There is only one."""

    def lease(self, log: Path, prefer: str | None = None) -> AbstractContextManager[Leased]:
        """See `device.base.Device`."""
        return nullcontext(self)

    def compute_outputs(self, runner: Mapping[str, Any], inputs: Path, outputs: Path, log: Path) -> dict[str, Any]:
        """See `device.base.Device`."""
        arguments = {"runner": dict(runner), "inputs": str(inputs), "outputs": str(outputs)}
        return dict(run_job("compute_outputs", arguments, log=log, timeout_s=10 * _GRACE_S))

    def take_samples(self, runner: Mapping[str, Any], inputs: Path, measure: MeasureSpec, log: Path) -> dict[str, Any]:
        """See `device.base.Device`."""
        arguments = {"runner": dict(runner), "inputs": str(inputs), **sample_arguments(measure)}
        return dict(run_job("take_samples", arguments, log=log, timeout_s=longest_s(measure) + _GRACE_S))

    def time_functions(
        self, runner: Mapping[str, Any], inputs: Path, measure: MeasureSpec, log: Path
    ) -> dict[str, Any]:
        """See `device.base.TimesFunctions`."""
        arguments = {"runner": dict(runner), "inputs": str(inputs), **profile_arguments(measure)}
        return dict(run_job("time_functions", arguments, log=log, timeout_s=10 * _GRACE_S))

    def time_kernels(self, calls: Sequence[Call], options: Mapping[str, Any], log: Path) -> list[list[float]]:
        """See `device.base.TimesKernels`."""
        return list(run_job("time_kernels", {"calls": calls, **options}, log=log, timeout_s=_GRACE_S))
