"""Which device and which target a spec runs with, and why: one sentence that ends up in the table."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable
from typing import Any

from layoutlab.device.choice import Choice
from layoutlab.device.cpu import cpu_name
from layoutlab.device.host import HostDevice
from layoutlab.device.kryo.device import KryoDevice
from layoutlab.device.kryo.toolchain import Toolchain
from layoutlab.device.rpc.address import RpcAddress
from layoutlab.device.rpc.choose import choose_remote
from layoutlab.errors import DeviceError
from layoutlab.spec.models import Spec
from layoutlab.spec.target import architecture, format_target

# Any of these links what TVM compiles for this machine.
LINKERS = ("g++", "clang++", "c++", "gcc", "clang", "cc")


def choose(
    spec: Spec,
    host_target: Callable[[], dict[str, Any]],
    simulated_core: Callable[[], Toolchain],
    describe: Callable[[RpcAddress], dict[str, Any]],
) -> Choice:
    """Choose for `spec`.

    The functions are called when they are needed: this machine's own target; the simulated core, which is provisioned
    by that; what a device over RPC says of itself. `auto` goes on without the core when it cannot be had. Raises
    DeviceError when the device that the spec asks for cannot be had or does not suit, or when this machine cannot link
    what TVM compiles.
    """
    if spec.device.address is not None:
        return choose_remote(spec, spec.device.address, describe(spec.device.address), host_target)
    if spec.device.on == "host" or _is_native(spec):
        return _choose_host(spec, host_target, "the spec says device: host")
    unsuited = why_not_simulated(spec)
    if unsuited is None:
        try:
            core = KryoDevice(simulated_core())
        except DeviceError as error:
            if spec.device.on == "kryo":
                raise
            unsuited = " ".join(str(error).split())
        else:
            return _choose_core(spec, core)
    if spec.device.on == "kryo":
        raise DeviceError(f"device: kryo does not suit this spec: {unsuited}")
    if spec.target == "host":
        return _choose_host(spec, host_target, "")
    return _choose_host(spec, host_target, f"no phone or board is named, and {unsuited}")


def _is_native(spec: Spec) -> bool:
    if spec.target == "host" or spec.device.on == "kryo":
        return False
    return architecture(spec.target) == platform.machine()


def why_not_simulated(spec: Spec) -> str | None:
    """Why the simulated core cannot stand in for the spec's target; None if it can."""
    if spec.target == "host":
        return "the target is this machine's own; the simulated core needs a target with -mcpu=kryo"
    if architecture(spec.target) != "aarch64" or spec.target.get("mcpu") != "kryo":
        return f"the simulated core is a Kryo, the target is {format_target(spec.target)}"
    if spec.threads != 1:
        return f"the simulated core has one thread, the spec asks for {spec.threads}"
    return None


def _choose_core(spec: Spec, core: KryoDevice) -> Choice:
    assert isinstance(spec.target, dict)
    wanted = "the spec says device: kryo" if spec.device.on == "kryo" else "no phone or board is named"
    return Choice(
        device=core,
        target={**spec.target, "num-cores": 1},
        reason=f"{wanted}, so it runs on the {core.name} ({core.toolchain.summary()}): its figures are simulated",
    )


def _choose_host(spec: Spec, host_target: Callable[[], dict[str, Any]], why: str) -> Choice:
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
        reason = (
            f"{why}, so it runs on this machine, {device.name} ({here}), with this machine's own target; "
            f"the spec's target ({asked}) makes {architecture(spec.target)} code, which does not run here, "
            "and these figures say nothing about it"
        )
    return Choice(device=device, target=target, reason=reason)


def _require_linker() -> None:
    if not any(map(shutil.which, LINKERS)):
        raise DeviceError(
            "no C compiler found: TVM needs one to link what it compiles. "
            "Install gcc or clang (on Debian: apt-get install g++) and run again"
        )
