"""The chain from this machine to a device over RPC, as data: its links, and what a check of it has to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from layoutlab.device.rpc.address import RpcAddress
from layoutlab.findings import BROKEN, Finding
from layoutlab.spec.models import Spec

# A device that is in use now is in use: nobody who asks what is wrong wants to wait for it.
LEASE_S = 3.0

# Each link with those that it needs, in the order in which they are tried.
_AT_TRACKER: dict[str, tuple[str, ...]] = {"tracker": (), "key": ("tracker",), "device": ("key",)}
_AT_AGENTS: dict[str, tuple[str, ...]] = {"agent": (), "device": ("agent",)}
_ON_DEVICE: dict[str, tuple[str, ...]] = {
    "versions": ("device",),
    "architecture": ("device",),
    "CPU features": ("device", "architecture"),
    "transfer": ("device",),
    "kernel": ("versions", "architecture", "CPU features", "transfer"),
    "baseline": ("device",),
    "clock": ("kernel",),
}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a spec wants of the devices at `address`. `cores` is as for `measure.cores.choose_cores`."""

    address: RpcAddress
    target: dict[str, Any] | Literal["host"]
    threads: int
    cores: str | tuple[int, ...]
    baseline: str


def wanted_by(spec: Spec, address: RpcAddress) -> Wanted:
    """What this spec wants."""
    return Wanted(
        address=address,
        target=spec.target,
        threads=spec.threads,
        cores=spec.measure.cores,
        baseline=spec.baseline.runtime,
    )


def links(address: RpcAddress) -> Mapping[str, tuple[str, ...]]:
    """The links of the chain to an address, in order, each with those that it needs."""
    return {**(_AT_AGENTS if address.tracker is None else _AT_TRACKER), **_ON_DEVICE}


def not_tried(part: str, needs: tuple[str, ...], before: Mapping[str, Finding]) -> Finding | None:
    """What to say of a link when one that it needs is broken, or was not looked at; None when it can be tried."""
    broken = [need for need in needs if need not in before or before[need].state in BROKEN]
    if not broken:
        return None
    return Finding(part=part, state="not tried", detail=f"needs: {', '.join(broken)}")
