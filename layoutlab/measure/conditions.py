"""The state of the machine around a measurement, as far as it can be read. What cannot be read is None or left out.

Only the standard library: this runs on the device itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layoutlab.measure.android import read_battery, read_thermal_status
from layoutlab.measure.sysfs import SYSFS, core_folders, read_int, read_text

# Of each core, by file: frequencies in kHz; `limit_khz` below `max_khz` is a capped core; `throttled` counts how
# often the core, `package_throttled` how often its package was slowed down for heat (Intel's CPUs).
_OF_A_CORE = {
    "frequency_khz": "cpufreq/scaling_cur_freq",
    "max_khz": "cpufreq/cpuinfo_max_freq",
    "limit_khz": "cpufreq/scaling_max_freq",
    "throttled": "thermal_throttle/core_throttle_count",
    "package_throttled": "thermal_throttle/package_throttle_count",
}
# Names of zones that are the CPU's: cpu-thermal, cpu0-silver-usr, mtktscpu, x86_pkg_temp, and those which kernels of
# Exynos and Tensor phones name after clusters. On boards with one sensor it is the whole chip's (soc-thermal).
_CPU_ZONE = re.compile(r".*cpu.*|x86_pkg_temp|big|mid|little|soc[-_]thermal")
# Zones are in thousandths of a degree, but whole degrees in kernels of some phones: below this a reading can only be
# degrees, for a running chip is not within 0.2 °C of freezing.
_WHOLE_DEGREES = 200
# Sensors that are switched off read as values like -274 °C.
_PLAUSIBLE_C = (-40.0, 150.0)


def read_conditions(root: Path = SYSFS, cores: Sequence[int] | None = None) -> dict[str, Any]:
    """The machine's state now, as JSON data.

    `load_1min`; `governor` and `frequency_khz` of the first of `cores` (the used ones; None: all); `cores`, with what
    is readable of each core of the machine: `core` (its number), `online`, `governor`, and the rest as in this
    module's table; `temperatures_c`, the (type, °C) of each thermal zone; `thermal_status`, Android's, from 0 (none)
    to 6 (shutdown); `battery`, with `level_percent` and `charging`.
    """
    found = [{"core": number, **_read_core(folder)} for number, folder in core_folders(root).items()]
    first = next((state for state in found if cores is None or state["core"] in cores), {})
    return {
        "load_1min": _load(),
        "governor": first.get("governor"),
        "frequency_khz": first.get("frequency_khz"),
        "cores": found,
        "temperatures_c": read_temperatures(root),
        "thermal_status": read_thermal_status(),
        "battery": read_battery(),
    }


def _read_core(folder: Path) -> dict[str, Any]:
    online = read_text(folder / "online")
    known = {
        # The first core often has no such file: it cannot be switched off.
        "online": None if online is None else online == "1",
        "governor": read_text(folder / "cpufreq/scaling_governor"),
        **{name: read_int(folder / file) for name, file in _OF_A_CORE.items()},
    }
    return {name: value for name, value in known.items() if value is not None}


def read_temperatures(root: Path = SYSFS) -> list[tuple[str, float]]:
    """The (type, °C) of each thermal zone that gives a plausible temperature."""
    found = []
    for folder in sorted((root / "class/thermal").glob("thermal_zone*")):
        kind, raw = read_text(folder / "type"), read_int(folder / "temp")
        if kind is None or raw is None:
            continue
        degrees = float(raw) if abs(raw) < _WHOLE_DEGREES else raw / 1e3
        if _PLAUSIBLE_C[0] < degrees < _PLAUSIBLE_C[1]:
            found.append((kind, degrees))
    return found


def hottest_cpu_c(temperatures_c: Sequence[Sequence[Any]]) -> float | None:
    """The highest temperature (°C) of the zones that are the CPU's; None when there are none."""
    return max((degrees for kind, degrees in temperatures_c if _CPU_ZONE.fullmatch(kind.lower())), default=None)


def _load() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None
