"""Whether heat or a frequency limit disturbed a round, from the machine's state before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from layoutlab.measure.android import THERMAL_STATUS
from layoutlab.measure.cores import name_cores

# A frequency that ends this much below where it began.
_DROP = 0.10
_Core = Mapping[str, Any]


def disturbances(
    before: Mapping[str, Any], after: Mapping[str, Any], cores: Sequence[int] | None, threads: int
) -> list[str]:
    """The reasons in plain words; empty when the round was not disturbed, as far as can be read.

    `before` and `after` are of `conditions.read_conditions`, `cores` those the round was pinned to (None: not
    pinned). Each core's cap is compared, and its frequency when all of them were busy. With fewer `threads` it is not
    known on which cores they ran, and idle cores slow down by themselves, so the fastest core's frequency is
    compared.
    """
    first, last = _used(before, cores), _used(after, cores)
    busy = cores is not None and threads >= len(cores)
    return [
        *_thermal(before, after),
        *(_drops(first, last, "frequency_khz", "frequency") if busy else _fastest_drop(first, last)),
        *_drops(first, last, "limit_khz", "frequency limit"),
        *_rises(first, last, "throttled", "throttled for heat"),
        *_rises(first, last, "package_throttled", "package throttled for heat"),
    ]


def _used(state: Mapping[str, Any], cores: Sequence[int] | None) -> dict[int, _Core]:
    return {found["core"]: found for found in state.get("cores", ()) if cores is None or found["core"] in cores}


def _thermal(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    status = max(before.get("thermal_status") or 0, after.get("thermal_status") or 0)
    if not status:
        return []
    name = THERMAL_STATUS[status] if status < len(THERMAL_STATUS) else "unknown"
    return [f"thermal status {status} ({name})"]


def _drops(first: Mapping[int, _Core], last: Mapping[int, _Core], field: str, name: str) -> list[str]:
    """Cores that share a change, as those of a cluster do, are one reason."""
    same: dict[str, list[int]] = {}
    for core, was, now in _both(first, last, field):
        if _dropped(was, now):
            same.setdefault(f"{name} fell from {was} to {now} kHz", []).append(core)
    return [f"{name_cores(cores)}: {text}" for text, cores in same.items()]


def _fastest_drop(first: Mapping[int, _Core], last: Mapping[int, _Core]) -> list[str]:
    known = _both(first, last, "frequency_khz")
    was, now = max((k[1] for k in known), default=0), max((k[2] for k in known), default=0)
    return [f"fastest core: frequency fell from {was} to {now} kHz"] if _dropped(was, now) else []


def _rises(first: Mapping[int, _Core], last: Mapping[int, _Core], field: str, name: str) -> list[str]:
    same: dict[str, list[int]] = {}
    for core, was, now in _both(first, last, field):
        if now > was:
            same.setdefault(f"{name} {now - was} time{'s' if now - was > 1 else ''}", []).append(core)
    return [f"{name_cores(cores)}: {text}" for text, cores in same.items()]


def _both(first: Mapping[int, _Core], last: Mapping[int, _Core], field: str) -> list[tuple[int, int, int]]:
    """(core, before, after) of a field, for the cores where both are known."""
    return [
        (core, state[field], last[core][field])
        for core, state in first.items()
        if field in state and field in last.get(core, {})
    ]


def _dropped(was: int, now: int) -> bool:
    return now < (1 - _DROP) * was
