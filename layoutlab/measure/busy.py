"""Whether something else used the machine's processors during a round.

CPU times say it of the round itself; the load average still remembers the tuning that ended a minute before it.
Only the standard library: this runs on the device itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

PROC = Path("/proc")
# Others' use of processors, in cores, from which on a round is disturbed. An idle Linux stays below 0.05; a process
# that computes takes 1.
_OTHERS = 0.25
# Linux counts in ticks of 10 ms: in less than this they say nothing.
_SHORTEST_S = 0.1
# A process of one thread that computes all the time gets less of its core than this only when it has to share it.
_SHARE = 0.9


def read_cpu_times(root: Path = PROC) -> dict[str, float]:
    """Seconds since some fixed time: `clock`, `own` (CPU time of this process and of children that ended), and, where
    /proc/stat is readable, `all` (CPU time of everything, all cores) and `stolen` (what a hypervisor gave to others).
    """
    own = os.times()
    found = {"clock": time.monotonic(), "own": own.user + own.system + own.children_user + own.children_system}
    try:
        # user nice system idle iowait irq softirq steal, in ticks; guests are part of user.
        ticks = [int(field) for field in (root / "stat").read_text().splitlines()[0].split()[1:9]]
        user, nice, system, _, _, irq, softirq, stolen = ticks
    except (OSError, ValueError, IndexError):
        return found
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return {**found, "all": (user + nice + system + irq + softirq) * tick_s, "stolen": stolen * tick_s}


def cores_of_others(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """How many cores others used on average, a hypervisor's other guests included; None where that cannot be told."""
    elapsed_s = after["clock"] - before["clock"]
    if "all" not in before or "all" not in after or elapsed_s < _SHORTEST_S:
        return None
    others_s = sum(after[name] - before[name] for name in ("all", "stolen")) - (after["own"] - before["own"])
    return max(0.0, round(others_s / elapsed_s, 2))


def busy_reasons(before: Mapping[str, float], after: Mapping[str, float], threads: int) -> list[str]:
    """Why the machine was too busy for the round, in plain words; empty when it was not, as far as can be told.

    `before` and `after` are of `read_cpu_times`; in between this process computed with so many `threads`.
    """
    others = cores_of_others(before, after)
    if others is not None:
        return [f"other processes used {others:.2f} cores"] if others > _OTHERS else []
    elapsed_s = after["clock"] - before["clock"]
    share = (after["own"] - before["own"]) / elapsed_s if elapsed_s >= _SHORTEST_S else 1.0
    return [f"it got only {100 * share:.0f} % of a core"] if threads == 1 and share < _SHARE else []
