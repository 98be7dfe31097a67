"""The state of the machine around a measurement, as far as it can be read."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

_CPU = Path("/sys/devices/system/cpu/cpu0/cpufreq")


def read_conditions() -> dict[str, Any]:
    """Load average over a minute, and the governor and frequency (kHz) of the first core; None is unknown."""
    return {
        "load_1min": round(os.getloadavg()[0], 2),
        "governor": _read(_CPU / "scaling_governor"),
        "frequency_khz": _read(_CPU / "scaling_cur_freq"),
    }


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def cpu_name() -> str:
    """The CPU's name as the kernel gives it, else its architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model") and value.strip():
                return " ".join(value.split())
    except OSError:
        pass
    return platform.processor() or platform.machine()
