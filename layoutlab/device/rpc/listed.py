"""Devices as `layoutlab devices` lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One device, or what was found in the place of one.

    `device` is what `--device` takes; `description` as an agent gives it (`layoutlab.agent.describe`), empty where it
    is not known; `detail` is what else there is to say.
    """

    device: str
    state: Literal["ready", "free", "busy", "not provisioned", "unreachable"]
    description: Mapping[str, Any] = field(default_factory=dict)
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class KeyCount:
    """How many devices a tracker has under a key, how many of them are free, and how many clients wait for one."""

    device: str
    devices: int
    free: int
    waiting: int


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What was found, in the order in which it was asked for."""

    devices: tuple[Listed, ...] = ()
    keys: tuple[KeyCount, ...] = ()

    def __add__(self, other: Survey) -> Survey:
        return Survey(devices=self.devices + other.devices, keys=self.keys + other.keys)
