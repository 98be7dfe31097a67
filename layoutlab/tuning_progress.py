"""How a variant's tuning went, batch by batch, as a store's events keep it.

The records of a variant do not say it: pruned and shipped ones have lost the order of their trials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layoutlab.store import Store

_FIELDS = ("done", "failed", "tuned", "tasks", "best_us")


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a tuning stood after a batch.

    `trials` were done, of which `failed` gave no time; `tuned` of the `tasks` that have anything to choose had a time;
    `best_us` is the sum of the best times over all ops in microseconds, which is not a latency.
    """

    trials: int
    failed: int
    tuned: int
    tasks: int
    best_us: float


def keep_progress(store: Store, variant: str, folder: str, event: Mapping[str, Any]) -> None:
    """Keep a worker's `trials` event; `folder` is the name of the folder of the variant's records."""
    fields = {name: event[name] for name in _FIELDS}
    last = store.find("progress", folder=folder)
    if last is None or any(last[name] != value for name, value in fields.items()):
        store.append("progress", variant=variant, folder=folder, **fields)


def find_progress(store: Store, folder: str) -> tuple[Progress, ...]:
    """The tuning of the records in `folder`, from its beginning or from where records were taken over.

    What was before records were removed or exchanged, after which there are fewer trials, is left out.
    """
    found: list[Progress] = []
    for event in store.all("progress", folder=folder):
        if found and event["done"] < found[-1].trials:
            found.clear()
        found.append(Progress(trials=event["done"], **{name: event[name] for name in _FIELDS[1:]}))
    return tuple(found)
