"""Which device and which target a spec runs with, and why: one sentence that ends up in the table."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from layoutlab.device.host import HostDevice, cpu_name
from layoutlab.errors import DeviceError
from layoutlab.spec.models import Spec
from layoutlab.spec.target import architecture, format_target


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The device, the target in TVM's dict form (num-cores included), and the reason in one sentence."""

    device: HostDevice
    target: dict[str, Any]
    reason: str


def choose(spec: Spec, host_target: Callable[[], dict[str, Any]]) -> Choice:
    """Choose for `spec`; `host_target` gives this machine's own target when it is needed.

    Raises DeviceError when this machine cannot link what TVM compiles.
    """
    _require_linker()
    device = HostDevice(cpu_name())
    here = platform.machine()
    if spec.target != "host" and architecture(spec.target) == here:
        target = {**spec.target, "num-cores": spec.threads}
        return Choice(device=device, target=target, reason=f"runs on this machine, {device.name} ({here})")
    target = {**host_target(), "num-cores": spec.threads}
    if spec.target == "host":
        reason = f"runs on this machine, {device.name} ({here}), with its own target"
    else:
        asked = format_target(spec.target)
        wanted = (
            "no phone, board or simulated core is available" if spec.device == "auto" else "the spec says device: host"
        )
        reason = (
            f"{wanted}, so it runs on this machine, {device.name} ({here}), with this machine's own target; "
            f"the spec's target ({asked}) makes {architecture(spec.target)} code, which does not run here, "
            "and these figures say nothing about it"
        )
    return Choice(device=device, target=target, reason=reason)


def _require_linker() -> None:
    if not any(shutil.which(name) for name in ("g++", "clang++", "c++", "gcc", "clang", "cc")):
        raise DeviceError(
            "no C compiler found: TVM needs one to link what it compiles. "
            "Install gcc or clang (on Debian: apt-get install g++) and run again"
        )
