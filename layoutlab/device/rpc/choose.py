"""Whether a device over RPC suits a spec, and the target its code is compiled for."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from typing import Any

from layoutlab.baseline.tflite import versions
from layoutlab.device.choice import Choice
from layoutlab.device.cpu import cpu_name
from layoutlab.device.rpc.address import RpcAddress
from layoutlab.device.rpc.device import RpcDevice
from layoutlab.errors import DeviceError
from layoutlab.spec.models import Spec
from layoutlab.spec.target import TargetDict, architecture, format_target

# Both sides have to have the same: they exchange what TVM compiled, and what layoutlab asks for.
_SAME_VERSIONS = ("layoutlab", "apache-tvm")


def choose_remote(
    spec: Spec, address: RpcAddress, description: Mapping[str, Any], host_target: Callable[[], dict[str, Any]]
) -> Choice:
    """The device at `address`, which says `description` of itself. Raises DeviceError when it does not suit."""
    if problems := unsuited(spec, description):
        raise DeviceError(f"the device {description['id']} at {address} does not suit this spec: {'; '.join(problems)}")
    device = RpcDevice(address=address.of_cpu(description.get("cpu")), description=description)
    target = host_target() if spec.target == "host" else spec.target
    assert isinstance(target, dict)
    return Choice(
        device=device,
        target={**target, "num-cores": spec.threads},
        reason=f"runs on {device.name}, the device {description['id']} at {address}",
        address=device.address,
    )


def unsuited(spec: Spec, description: Mapping[str, Any]) -> list[str]:
    """Everything about a device for which the spec cannot run on it, each with what to do."""
    return [*wrong_versions(description), *wrong_target(spec.target, description)]


def wrong_versions(description: Mapping[str, Any]) -> list[str]:
    """What a device has in another version than this machine, where both have to have the same."""
    here, there = versions(), description["versions"]
    return [
        f"it has {name} {there[name]}, and this machine {here[name]}: install the same version on both"
        for name in _SAME_VERSIONS
        if there.get(name, "unknown") not in ("unknown", here[name])
    ]


def wrong_target(target: TargetDict | str, description: Mapping[str, Any]) -> list[str]:
    """Why code for the target is not for the device, if it is not."""
    machine = description.get("machine")
    if target == "host":
        if (machine, description.get("cpu")) == (platform.machine(), cpu_name()):
            return []
        what = f"a {description.get('cpu')} ({machine})" if machine else "of an unknown kind"
        return [
            f"target: host is this machine's own, a {cpu_name()} ({platform.machine()}), and the device is {what}: "
            "name the device's target, e.g. llvm -device=arm_cpu -mtriple=aarch64-linux-gnu -mattr=+neon"
        ]
    if machine is None or architecture({"mtriple": machine}) == architecture(target):
        return []
    return [
        f"the target ({format_target(target)}) makes {architecture(target)} code, and the device is {machine}: give "
        "the spec the device's target, or run it on another device"
    ]
