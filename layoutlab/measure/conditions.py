"""The state of the machine around a measurement, as far as it can be read."""

from __future__ import annotations

import os
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
