"""Letting a device cool down before a round. Only the standard library: this runs on the device itself."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from layoutlab.measure.conditions import hottest_cpu_c, read_temperatures
from layoutlab.measure.sysfs import SYSFS

# Temperatures change over seconds; reading them more often would only keep a core awake.
_LOOK_EVERY_S = 1.0


def cool_down(ms: float, until_c: float | None, limit_s: float, root: Path = SYSFS) -> dict[str, Any]:
    """Pause for `ms`, then until the hottest CPU zone is at or below `until_c`, but no longer than `limit_s`.

    Returns `waited_s`, and with a temperature to reach `until_c`, `hottest_c` (what it ended with) and `reached`. Where
    no CPU temperature can be read the last two are None, and nothing but the pause is waited for.
    """
    started = time.monotonic()
    if ms:
        time.sleep(ms / 1e3)
    if until_c is None:
        return {"waited_s": round(time.monotonic() - started, 2)}
    ends = time.monotonic() + limit_s
    hottest = hottest_cpu_c(read_temperatures(root))
    while hottest is not None and hottest > until_c and (left_s := ends - time.monotonic()) > 0:
        time.sleep(min(_LOOK_EVERY_S, left_s))
        hottest = hottest_cpu_c(read_temperatures(root))
    return {
        "waited_s": round(time.monotonic() - started, 2),
        "until_c": until_c,
        "hottest_c": hottest,
        "reached": None if hottest is None else hottest <= until_c,
    }
