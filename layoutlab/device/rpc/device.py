"""Phones and boards over RPC as a device of experiments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layoutlab.device.base import DeviceKind, longest_s, profile_arguments, sample_arguments
from layoutlab.device.rpc.address import GRACE_S, RpcAddress
from layoutlab.engine.base import to_json
from layoutlab.errors import DeviceError, DeviceLost, StageError
from layoutlab.process import Worker, run_job
from layoutlab.roofline.kernels import Call
from layoutlab.spec.models import MeasureSpec, Spec

# Starting a worker with TVM, finding a device that is free, and hearing what it is.
_LEASE_S = 120.0
# Networks run in milliseconds on what they are made for, and in many seconds on an agent under qemu.
_OUTPUTS_S = 600.0


def describe_remote(address: RpcAddress, spec: Spec, log: Path) -> dict[str, Any]:
    """What a device of the address says of itself (see `layoutlab.agent.describe`), which takes a lease of it.

    Raises DeviceError when it lacks the spec's cores, and within a quarter of a minute when nothing answers.
    """
    cores = spec.measure.model_dump(mode="json")["cores"]
    arguments = {"address": to_json(address), "cores": cores, "threads": spec.threads}
    return dict(run_job("describe_remote", arguments, log=log, timeout_s=_LEASE_S))


def litert_version(description: Mapping[str, Any]) -> str | None:
    """The version of LiteRT on a device; None where there is none."""
    found = description["versions"].get("ai-edge-litert", "unknown")
    return None if found in ("unknown", "not installed") else str(found)


@dataclass(frozen=True, kw_only=True)
class RpcDevice:
    """The devices at an address, which are alike: whichever is free does what is asked."""

    address: RpcAddress
    description: Mapping[str, Any]
    kind: DeviceKind = field(default="rpc", init=False)
    simulated: bool = field(default=False, init=False)

    @property
    def name(self) -> str:
        """Its CPU, and that it was reached over RPC."""
        if "cpu" not in self.description:
            return f"plain TVM RPC server with the key {self.address.key or 'of none'}"
        return f"{self.description['cpu']} ({self.description['machine']}), over RPC"

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the device's own packages."""
        return {f"device: {name}": version for name, version in self.description["versions"].items()}

    @contextlib.contextmanager
    def lease(self, log: Path, prefer: str | None = None) -> Iterator[LeasedDevice]:
        """See `device.base.Device`."""
        with Worker(log) as worker:
            arguments = {"address": to_json(self.address), "prefer": prefer}
            with _lost_with(worker, self.address):
                found = worker.do("lease_remote", arguments, timeout_s=_LEASE_S)
            yield LeasedDevice(device=self, worker=worker, id=found["id"])

    def compute_outputs(self, runner: Mapping[str, Any], inputs: Path, outputs: Path, log: Path) -> dict[str, Any]:
        """See `device.base.Device`. Where the device has no TFLite, this machine's gives the reference."""
        if runner["kind"] == "tflite" and not self.has_tflite:
            arguments = {"runner": dict(runner), "inputs": str(inputs), "outputs": str(outputs)}
            done = dict(run_job("compute_outputs", arguments, log=log, timeout_s=_OUTPUTS_S))
            return {"runtime": f"{done['runtime']}, on this machine: the device has no TFLite"}
        with self.lease(log) as leased:
            return leased.compute_outputs(runner, inputs, outputs, log)

    @property
    def has_tflite(self) -> bool:
        """Whether the baseline runs on the device."""
        return litert_version(self.description) is not None


@dataclass(frozen=True, kw_only=True)
class LeasedDevice:
    """One of the devices, which nobody else gets meanwhile."""

    device: RpcDevice
    worker: Worker
    id: str

    def compute_outputs(self, runner: Mapping[str, Any], inputs: Path, outputs: Path, log: Path) -> dict[str, Any]:
        """See `device.base.Device`."""
        arguments = {"runner": dict(runner), "inputs": str(inputs), "outputs": str(outputs)}
        return dict(self._do("remote_outputs", arguments, _OUTPUTS_S))

    def take_samples(self, runner: Mapping[str, Any], inputs: Path, measure: MeasureSpec, log: Path) -> dict[str, Any]:
        """See `device.base.Device`."""
        arguments = {"runner": dict(runner), "inputs": str(inputs), "arguments": sample_arguments(measure)}
        limit_s = self.device.address.timeout_s + longest_s(measure)
        return dict(self._do("remote_samples", arguments, limit_s))

    def time_functions(
        self, runner: Mapping[str, Any], inputs: Path, measure: MeasureSpec, log: Path
    ) -> dict[str, Any]:
        """See `device.base.TimesFunctions`."""
        arguments = {"runner": dict(runner), "inputs": str(inputs), "arguments": profile_arguments(measure)}
        return dict(self._do("remote_functions", arguments, _OUTPUTS_S))

    def time_kernels(self, calls: Sequence[Call], options: Mapping[str, Any], log: Path) -> list[list[float]]:
        """See `device.base.TimesKernels`."""
        return list(self._do("remote_kernels", {"calls": calls, "options": dict(options)}, _OUTPUTS_S))

    def _do(self, verb: str, arguments: dict[str, Any], limit_s: float) -> Any:
        """The device itself ends what takes longer than the limit; when not even that comes back, it is lost."""
        with _lost_with(self.worker, self.device.address):
            return self.worker.do(verb, {**arguments, "limit_s": limit_s}, timeout_s=limit_s + GRACE_S)


@contextlib.contextmanager
def _lost_with(worker: Worker, address: RpcAddress) -> Iterator[None]:
    """A worker that is gone, or silent for too long, had lost its device."""
    try:
        yield
    except DeviceError:
        raise
    except StageError as error:
        if worker.alive:
            raise
        raise DeviceLost(f"the device at {address} gives no answer any more ({error})") from error
