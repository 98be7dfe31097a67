"""Trials that `layoutlab tune` made besides a spec's budget, as a store's events know them.

A spec's budget says what `run` spends. Trials that were asked for on top of it must neither use it up (other tasks
would starve) nor be forgotten when the tuning that made them was interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layoutlab.engine.base import TuneResult
from layoutlab.store import Store


def begin_tuning(store: Store, variant: str, key: str, folder: Path, additional: bool) -> None:
    """Note how many records there are before `layoutlab tune` makes more."""
    store.append("tune_begins", variant=variant, key=key, additional=additional, records=count_records(folder))


def end_tuning(store: Store, variant: str, key: str, additional: bool, result: TuneResult) -> None:
    """Note how many trials it made."""
    fields = {"trials": result.trials, "ended": result.ended, "tasks": list(result.chosen)}
    store.append("tuned", variant=variant, key=key, additional=additional, **fields)


def end_adopting(store: Store, variant: str, key: str, tasks: Mapping[str, int]) -> None:
    """Note how many trials were taken over from the tuning of another model, by task; they are additional ones."""
    trials = sum(tasks.values())
    store.append("tuned", variant=variant, key=key, additional=True, trials=trials, ended="adopted", tasks=list(tasks))


def additional_trials(store: Store, key: str, folder: Path) -> int:
    """Trials in the records of `folder` that come on top of the spec's budget."""
    _end_interrupted(store, key, folder)
    return sum(event["trials"] for event in store.all("tuned", key=key) if event["additional"])


def tuned_since(store: Store, key: str, built: dict[str, Any]) -> bool:
    """Whether `layoutlab tune` made trials after the event `built`."""
    position = next(position for position, event in enumerate(store.events) if event is built)
    later = store.events[position:]
    return any(event["kind"] == "tuned" and event["key"] == key and event["trials"] for event in later)


def _end_interrupted(store: Store, key: str, folder: Path) -> None:
    """A tuning that was interrupted made as many trials as there are more records now: nothing came after it."""
    events = [event for event in store.events if event["kind"] in ("tune_begins", "tuned") and event["key"] == key]
    if events and events[-1]["kind"] == "tune_begins":
        begun = events[-1]
        trials = max(0, count_records(folder) - begun["records"])
        fields = {"variant": begun["variant"], "key": key, "additional": begun["additional"]}
        store.append("tuned", **fields, trials=trials, ended="interrupted", tasks=None)


def count_records(folder: Path) -> int:
    """Trials in the records of `folder`, MetaSchedule's or AutoTVM's: whole lines."""
    paths = [folder / name for name in ("records.jsonl", "autotvm.log")]
    return sum(path.read_bytes().count(b"\n") for path in paths if path.exists())
