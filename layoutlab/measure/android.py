"""What an Android device says about its heat and battery, by its program `dumpsys`. Elsewhere nothing is known."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

# A service that hangs must not hold up a round.
_LIMIT_S = 2.0
# Android's android.os.Temperature.THROTTLING_*, by number.
THERMAL_STATUS = ("none", "light", "moderate", "severe", "critical", "emergency", "shutdown")
# android.os.BatteryManager: CHARGING is 2, FULL (and on the charger) is 5.
_CHARGING = (2, 5)


def read_thermal_status() -> int | None:
    """The thermal status from 0 (none) to 6 (shutdown), see `THERMAL_STATUS`; Android 10 and later have it."""
    return thermal_status(_dumpsys("thermalservice"))


def read_battery() -> dict[str, Any] | None:
    """The battery's `level_percent` and whether it is `charging`, each if it is known."""
    return battery(_dumpsys("battery"))


def thermal_status(text: str) -> int | None:
    """The thermal status in what `dumpsys thermalservice` writes."""
    return _number(text, "Thermal Status")


def battery(text: str) -> dict[str, Any] | None:
    """The battery's state in what `dumpsys battery` writes; None when nothing of it is there."""
    level, status = _number(text, "level"), _number(text, "status")
    known = {"level_percent": level, "charging": None if status is None else status in _CHARGING}
    return {name: value for name, value in known.items() if value is not None} or None


def _number(text: str, name: str) -> int | None:
    found = re.search(rf"^\s*{name}: *([0-9]+)\s*$", text, re.MULTILINE)
    return int(found[1]) if found else None


def _dumpsys(service: str) -> str:
    """What the service says about itself; nothing where there is no such program or service."""
    program = shutil.which("dumpsys")
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, service],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""
