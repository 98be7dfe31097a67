"""The records that a variant's tuning goes on from: its own, those of another run, or shipped ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from layoutlab.errors import StageError, StoreError, UsageError
from layoutlab.progress import Progress
from layoutlab.records.identity import Identity
from layoutlab.records.repair import repair
from layoutlab.records.sources import claim, has_records, read_origin, set_aside, shown, take_over_shipped
from layoutlab.reuse import take_over_records
from layoutlab.store import Store


@dataclass(frozen=True, kw_only=True)
class Found:
    """Where the records of a folder were taken over from (None: its own), whether just now, and what to say of it."""

    origin: dict[str, str] | None
    taken_over: bool = False
    news: str | None = None


def find_records(folder: Path, identity: Identity, runs: Path, shipped: Path, fresh: bool) -> Found:
    """Claim `folder` for `identity`, and take over records for it when it has none, unless `fresh`.

    `runs` holds the folders of all runs, `shipped` the sets that lie beside the spec. With `fresh`, records that were
    taken over earlier are set aside. Raises StageError when the folder holds records of something else, or files that
    cannot be read or written.
    """
    with _stage():
        return _find(folder, identity, runs, shipped, fresh)


def _find(folder: Path, identity: Identity, runs: Path, shipped: Path, fresh: bool) -> Found:
    claim(folder, identity)
    origin = read_origin(folder)
    if fresh:
        if origin is None:
            return Found(origin=None)
        aside = set_aside(folder)
        return Found(origin=None, news=f"records from {origin['source']} are set aside in {shown(aside)}")
    if has_records(folder):
        return Found(origin=origin)
    if source := take_over_records(folder, runs):
        return _taken_over(folder, f"goes on from the same variant's records in {source}")
    if source := take_over_shipped(folder, identity, shipped):
        return _taken_over(folder, f"goes on from shipped records in {shown(source)}")
    return Found(origin=None)


def _taken_over(folder: Path, news: str) -> Found:
    return Found(origin=read_origin(folder), taken_over=True, news=news)


@contextlib.contextmanager
def _stage() -> Iterator[None]:
    """What goes wrong with a variant's record files costs that variant."""
    try:
        yield
    except OSError as error:
        raise StageError("records", f"{error.filename}: {error.strerror}") from error
    except (UsageError, StoreError) as error:
        raise StageError("records", str(error)) from error


def repair_and_say(folder: Path, variant: str, store: Store, progress: Progress) -> None:
    """Drop what a kill left of the last lines in a variant's folder; the run's record and the user are told.

    Raises StageError when the files cannot be read or written.
    """
    with _stage():
        done = repair(folder)
    if done:
        store.append("repaired", variant=variant, **asdict(done))
        progress.say(f"{variant}: {done.text()}")
