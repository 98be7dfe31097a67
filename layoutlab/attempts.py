"""One round of one row, repeated while something disturbs it, each attempt an event of the store."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from layoutlab.progress import Progress
from layoutlab.store import Store


def begin_again(store: Store) -> None:
    """Rounds that were taken before count no more."""
    store.append("again")


def series_of(store: Store) -> dict[str, int]:
    """What tells rounds from those before the last `begin_again`, for the key of a protocol; empty before the first."""
    begun = len(store.all("again"))
    return {"again": begun} if begun else {}


def measure_round(
    store: Store, progress: Progress, heading: str, take: Callable[[], dict[str, Any] | None], retries: int, **key: Any
) -> None:
    """Take a row's round, unless the store has it already; `key` are the event's fields that name row and round.

    What was disturbed is repeated at most `retries` times; the last attempt counts. What `take` answers is what
    `device.base.Leased.take_samples` answers, or None when there is nothing to take.
    """
    identity = {name: key[name] for name in ("protocol", "round", "row")}
    before = store.all("samples", **identity)
    for attempt in range(len(before), retries + 1):
        if before and not before[-1].get("disturbed"):
            return
        progress.show(f"{heading}, attempt {attempt + 1}" if attempt else heading)
        begun = time.monotonic()
        taken = take()
        if taken is None:
            return
        before = [store.append("samples", **key, **taken, took_s=round(time.monotonic() - begun, 2))]
