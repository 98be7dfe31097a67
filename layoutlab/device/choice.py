"""What a spec runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from layoutlab.device.base import Device
from layoutlab.device.rpc.address import RpcAddress


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The device, the target in TVM's dict form (num-cores included), and the reason in one sentence.

    `address` is where devices over RPC are found, with the CPU that they have to have.
    """

    device: Device
    target: dict[str, Any]
    reason: str
    address: RpcAddress | None = None
