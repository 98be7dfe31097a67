"""What the experiment asks of a device, whatever it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from layoutlab.roofline.kernels import Call
from layoutlab.spec.models import MeasureSpec

DeviceKind = Literal["host", "kryo", "rpc"]


class Leased(Protocol):
    """One device that nobody else gets meanwhile: it runs artifacts and the TFLite baseline, each in a fresh process.

    Simulated devices answer with counts that repeat exactly, so one round is enough; the others with samples in ms.
    Raises StageError for what is wrong with what was to be run, DeviceLost when the device went away.
    """

    @property
    def id(self) -> str | None:
        """Which one of several it is; None where there is only one."""

    def compute_outputs(self, runner: Mapping[str, Any], inputs: Path, outputs: Path, log: Path) -> dict[str, Any]:
        """Run every input set of `inputs` (see `measure.inputs`) and write the outputs; says what ran them.

        `runner` is as for `device.runners.open_runner`.
        """

    def take_samples(self, runner: Mapping[str, Any], inputs: Path, measure: MeasureSpec, log: Path) -> dict[str, Any]:
        """One round of one row, as it goes into the record.

        Measured: what `device.on_device.take_samples` answers. Simulated: `counts`, what
        `device.kryo.cycles` computes cycles from, `functions`, the same for each function, and `runtime`.
        """


class Device(Protocol):
    """What a spec runs on: one device, or several that are alike."""

    @property
    def name(self) -> str:
        """What tables call it."""

    @property
    def kind(self) -> DeviceKind:
        """How an engine tunes and links for it."""

    @property
    def simulated(self) -> bool:
        """Whether its figures are simulated."""

    @property
    def versions(self) -> dict[str, str]:
        """Versions of what is installed on it."""

    def lease(self, log: Path, prefer: str | None = None) -> AbstractContextManager[Leased]:
        """One of the devices for some time, if possible the one with the id `prefer`; its output goes to `log`."""

    def compute_outputs(self, runner: Mapping[str, Any], inputs: Path, outputs: Path, log: Path) -> dict[str, Any]:
        """As `Leased.compute_outputs`, on any of the devices."""


def sample_arguments(measure: MeasureSpec) -> dict[str, Any]:
    """The arguments of `device.on_device.take_samples` that the spec decides, the same for every device."""
    return {
        "repeats": measure.repeats,
        "min_repeat_ms": measure.min_repeat_ms,
        "warmup_ms": measure.warmup_ms,
        "cores": measure.cores if isinstance(measure.cores, str) else list(measure.cores),
        "cooldown_ms": measure.cooldown_ms,
        "cooldown_until_c": measure.cooldown_until_c,
        "cooldown_limit_s": measure.cooldown_limit_s,
    }


def profile_arguments(measure: MeasureSpec) -> dict[str, Any]:
    """The arguments of `device.function_times.time_functions`, the same for every device."""
    return {"inferences": 100, "budget_ms": 20_000.0, "warmup_ms": 500.0, "cores": sample_arguments(measure)["cores"]}


def expected_s(measure: MeasureSpec) -> float:
    """Seconds that warm-up and samples of one `take_samples` are meant to take."""
    return (measure.warmup_ms + measure.repeats * measure.min_repeat_ms) / 1e3


def longest_s(measure: MeasureSpec) -> float:
    """Seconds after which a `take_samples` hangs, besides what its start takes.

    Slow models need far more than `expected_s`, for each repeat is at least one call; cool-downs take what they may.
    """
    wait_s = 0 if measure.cooldown_until_c is None else measure.cooldown_limit_s
    return 10 * expected_s(measure) + measure.cooldown_ms / 1e3 + wait_s


@runtime_checkable
class TimesKernels(Protocol):
    """A leased device that can also time kernels of `roofline.kernels`."""

    def time_kernels(self, calls: Sequence[Call], options: Mapping[str, Any], log: Path) -> list[list[float]]:
        """See `device.kernel_times.time_kernels`, whose further keyword arguments are `options`; paths are local."""


@runtime_checkable
class TimesFunctions(Protocol):
    """A leased device that can also time each function of an artifact within an inference."""

    def time_functions(
        self, runner: Mapping[str, Any], inputs: Path, measure: MeasureSpec, log: Path
    ) -> dict[str, Any]:
        """See `device.function_times`; on the cores of `measure`, `inputs` as for `Leased.take_samples`."""
