"""Plain data: experiments with single functions of a built variant, which tell why one is slow in the network."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ExplainRequest:
    """What to make experiments with: the `functions` of the library, by symbol.

    `promised_us` are the best times of the tuning tasks when the library was built, by name; `unfused_records` are
    folders with records of the same variant without fusion, for the parts of functions.
    """

    functions: tuple[str, ...]
    promised_us: dict[str, float | None]
    unfused_records: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Microseconds of one call, or one line that says why there are none."""

    us: float | None = None
    failed: str | None = None


@dataclass(frozen=True, kw_only=True)
class Part:
    """One of the functions that a fused function was made of, alone, its data in the caches.

    `transforms` are the changes of layout that it is, `tuned` whether it has a tuning record, or there is nothing to
    choose; else it is naive loops.
    """

    function: str
    transforms: tuple[str, ...]
    tuned: bool
    timed: Timed


@dataclass(frozen=True, kw_only=True)
class FunctionExperiments:
    """What was found out about one function of the library.

    `warm` and `cold`: the function as it was built, called alone, all its data in the caches, and all but its first
    input out of them. `again`: its record's schedule, built and measured as the tuner does. None is an experiment
    that there is not: the simulated core has no warm caches, and what has no record cannot be measured again.
    `parts` are the functions it was fused of, empty where nothing was fused; `like_record` whether the function has
    the same blocks as the record's schedule, None without a record.
    """

    function: str
    warm: Timed | None
    cold: Timed | None
    again: Timed | None
    parts: tuple[Part, ...]
    like_record: bool | None
