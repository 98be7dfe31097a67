"""What profiles say about why one variant is faster than another."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layoutlab.compare.results import ResultRow
from layoutlab.errors import UsageError

# Operators shown of each two variants.
_SHOWN = 6
# From this difference on a profile's end-to-end time is not that of the table.
_OTHER_TIME = 0.10
LAYOUTS = "layout transforms and what computes no operator"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What one original operator takes in two variants, with all that is fused to it, in us."""

    operator: str
    fast_us: float
    slow_us: float

    @property
    def lost_us(self) -> float:
        """How much longer it takes in the slower variant; negative where that is the faster one."""
        return self.slow_us - self.fast_us


@dataclass(frozen=True, kw_only=True)
class Why:
    """The largest differences between two profiled variants; `total_us` is that of their end-to-end times."""

    fast: str
    slow: str
    total_us: float
    largest: tuple[Difference, ...]
    notes: tuple[str, ...]


def read_profile(row: ResultRow) -> dict[str, Any] | None:
    """The row's profile beside its table; None when there is none. Raises UsageError when it cannot be read."""
    path = row.result.path.with_name(f"profile.{row.name}.json")
    if not path.is_file():
        return None
    try:
        profile = json.loads(path.read_text())
        if profile["format"] != 1:
            raise ValueError(f"format {profile['format']}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} cannot be read ({error}): layoutlab profile {row.result.spec} writes it anew"
        ) from error
    return dict(profile)


def explain(fast: tuple[str, ResultRow], slow: tuple[str, ResultRow]) -> Why | None:
    """Why `slow` takes longer than `fast`, each a label and its row; None when one of them has no profile."""
    profiles = read_profile(fast[1]), read_profile(slow[1])
    if profiles[0] is None or profiles[1] is None:
        return None
    one, two = (_by_operator(profile) for profile in profiles if profile is not None)
    found = [
        Difference(operator=name, fast_us=one.get(name, 0.0), slow_us=two.get(name, 0.0))
        for name in dict.fromkeys([*one, *two])
    ]
    found.sort(key=lambda difference: -abs(difference.lost_us))
    pairs = [(label, row, profile) for (label, row), profile in zip((fast, slow), profiles, strict=True)]
    return Why(
        fast=fast[0],
        slow=slow[0],
        total_us=(profiles[1]["end_to_end_ms"] - profiles[0]["end_to_end_ms"]) * 1e3,
        largest=tuple(found[:_SHOWN]),
        notes=tuple(note for label, row, profile in pairs if (note := _of_another_time(label, row, profile))),
    )


def _by_operator(profile: Mapping[str, Any]) -> dict[str, float]:
    """Microseconds by original operator: a function counts for the operator in it that computes most."""
    flop = {operator["index"]: operator["flop"] for operator in profile["operators"]}
    found: dict[str, float] = defaultdict(float)
    for row in profile["rows"]:
        # As "58 CONV_2D 1x1": number in the file, type and window.
        names = row["ops"] or row["parts"]
        name = max(names, key=lambda op: flop[int(op.split()[0])]) if names else LAYOUTS
        found[name] += row["time_ms"] * 1e3
    return dict(found)


def _of_another_time(label: str, row: ResultRow, profile: Mapping[str, Any] | None) -> str | None:
    if profile is None or row.ms is None:
        return None
    ms = profile["end_to_end_ms"]
    if abs(ms - row.ms) <= _OTHER_TIME * row.ms:
        return None
    return f"the profile of {label} is of another time: {ms:.3f} ms end to end, and {row.ms:.3f} ms in the table"
