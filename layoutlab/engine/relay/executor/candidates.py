"""How the program that times candidates (`pricing`) is started. TVM is not imported."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from layoutlab.device.candidate_timing import Timing
from layoutlab.device.rpc.address import RpcAddress

_PROGRAM = [sys.executable, "-m", "layoutlab.engine.relay.executor.pricing"]


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Where candidates are measured and how: a parsed target, and the `cores` and `threads` of TVM on a device."""

    address: RpcAddress
    target: dict[str, Any]
    timing: Timing
    cores: str | tuple[int, ...]
    threads: int


def command(devices: Devices | None, folder: Path) -> list[str]:
    """The command that measures on `devices`, told by a file in `folder`, or else prices on simulated cores."""
    if devices is None:
        return _PROGRAM
    described = folder / "devices.json"
    described.write_text(json.dumps(asdict(devices)))
    return [*_PROGRAM, "--rpc", str(described.resolve())]
