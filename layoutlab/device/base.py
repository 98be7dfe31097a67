"""What the experiment asks of a device, whatever it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from layoutlab.spec.models import MeasureSpec

DeviceKind = Literal["host", "kryo"]


class Device(Protocol):
    """Runs artifacts and the TFLite baseline; each job in a fresh process.

    Simulated devices answer with counts that repeat exactly, so one round is enough; the others with samples in ms.
    """

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

    def compute_outputs(self, runner: Mapping[str, Any], inputs: Path, outputs: Path, log: Path) -> dict[str, Any]:
        """Run every input set of `inputs` (see `measure.inputs`) and write the outputs; says what ran them.

        `runner` is as for `device.runners.open_runner`.
        """

    def take_samples(self, runner: Mapping[str, Any], inputs: Path, measure: MeasureSpec, log: Path) -> dict[str, Any]:
        """One round of one row, as it goes into the record.

        Measured: `samples_ms`, `conditions` before and after, and `runtime`. Simulated: `counts`, what
        `device.kryo.cycles` computes cycles from, `functions`, the same for each function, and `runtime`.
        """


@runtime_checkable
class TimesFunctions(Protocol):
    """A device that can also time each function of an artifact within an inference."""

    def time_functions(self, runner: Mapping[str, Any], inputs: Path, log: Path) -> dict[str, Any]:
        """See `device.function_times`; `inputs` as for `Device.take_samples`."""
