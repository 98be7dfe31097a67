"""Where a variant's records come from: its own folder, shipped sets beside the spec, and sets lent by others."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layoutlab.errors import StageError, UsageError
from layoutlab.records.change import pruned
from layoutlab.records.files import RECORDS, SPENT, WORKLOADS, RecordSet, find_sets, read_set
from layoutlab.records.identity import ABOUT, Identity, differences, read_about, write_about
from layoutlab.records.replace import finish_replacing, replace_together

# Where the records of a folder were taken over from: {"kind": "shipped" or "run", "source": folder}.
ORIGIN = "origin.json"
_SET_ASIDE = "set-aside"


def claim(folder: Path, identity: Identity) -> None:
    """Say in `folder` what its records belong to.

    Raises StageError when it holds records of something else, and UsageError when its about.json cannot be read.
    """
    finish_replacing(folder)
    if not has_records(folder):
        (folder / ORIGIN).unlink(missing_ok=True)
        write_about(folder, identity)
        return
    elsewhere = (
        f"To start afresh, remove {folder}. To use these records only for what has none of its own, move them to "
        "another folder first, and lend them to the run: --borrow FOLDER"
    )
    if not (folder / ABOUT).exists():
        raise StageError(
            "records", f"{folder} holds records, but no {ABOUT} that says what they belong to. {elsewhere}"
        )
    differ = differences(identity, read_about(folder))
    if differ:
        listed = "; ".join(difference.text("is tuned", "is in the records") for difference in differ)
        raise StageError("records", f"the records in {folder} do not belong to this variant: {listed}. {elsewhere}")


def has_records(folder: Path) -> bool:
    """Whether the folder of a variant holds any records, or counts of some."""
    return any((folder / name).exists() and (folder / name).stat().st_size for name in (RECORDS, SPENT))


def take_over_shipped(folder: Path, identity: Identity, shipped: Path) -> Path | None:
    """Copy the set below `shipped` that belongs to exactly this to `folder`; returns which, None when there is none.

    Of several the one with the most trials. Raises UsageError when a set below `shipped` cannot be read.
    """
    found = {path: read_set(path) for path in find_sets(shipped) if not differences(identity, read_about(path))}
    if not found:
        return None
    path, records = max(found.items(), key=lambda item: item[1].trials)
    replace_together(folder, records.contents() | origin_file("shipped", path))
    return path


def origin_file(kind: str, source: Path) -> dict[str, bytes]:
    """The file that notes where the records beside it were taken over from: "shipped", or another "run"."""
    return {ORIGIN: json.dumps({"kind": kind, "source": shown(source)}).encode()}


def read_origin(folder: Path) -> dict[str, str] | None:
    """Where the records of `folder` were taken over from; None when they are its own from the first trial."""
    path = folder / ORIGIN
    return dict(json.loads(path.read_bytes())) if path.exists() else None


def set_aside(folder: Path) -> Path:
    """Move the records of `folder`, and what goes with them, into a folder of their own; returns it."""
    aside = folder / _SET_ASIDE
    aside.mkdir(exist_ok=True)
    # The note of their origin last: until it is gone, this is done again.
    for name in (RECORDS, WORKLOADS, SPENT, "failures.jsonl", ORIGIN):
        if (folder / name).exists():
            os.replace(folder / name, aside / name)
    return aside


@dataclass(frozen=True, kw_only=True)
class Lent:
    """A set that a run may borrow from: where it came from, its best records in a folder MetaSchedule reads."""

    source: str
    folder: Path
    sha256: str
    identity: Identity

    def note(self, identity: Identity) -> dict[str, Any]:
        """As the run's record keeps it: the source, and how the set differs from what is tuned."""
        differ = differences(identity, self.identity)
        return {"source": self.source, "sha256": self.sha256, "differences": [vars(item) for item in differ]}


def lend(sources: Sequence[Path], folder: Path) -> tuple[Lent, ...]:
    """The sets in and below each of `sources`, as copies below `folder`: others may be writing to theirs.

    Raises UsageError when a source holds no set.
    """
    return tuple(_lend(path, folder) for source in sources for path in _sets_of(source))


def _sets_of(source: Path) -> Iterable[Path]:
    found = find_sets(source)
    if not found:
        raise UsageError(
            f"--borrow {source}: no records there; expected a folder with {ABOUT}, {WORKLOADS} and {RECORDS}, or one "
            "of such folders. layoutlab records export makes them of a run's records"
        )
    return found


def _lend(path: Path, folder: Path) -> Lent:
    found: RecordSet = pruned(read_set(path))
    contents = {name: data for name, data in found.contents().items() if name != SPENT}
    sha256 = hashlib.sha256(b"".join(contents.values())).hexdigest()
    copy = folder / sha256[:12]
    copy.mkdir(parents=True, exist_ok=True)
    replace_together(copy, contents)
    return Lent(source=shown(path), folder=copy.resolve(), sha256=sha256, identity=found.identity)


def shown(path: Path) -> str:
    """A path as messages and tables name it: relative where it lies below the current folder."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path.resolve())
