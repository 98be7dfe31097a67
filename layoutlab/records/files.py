"""A record set in memory: read from a folder, plain or compressed, and written to a new one."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layoutlab.errors import StoreError, UsageError
from layoutlab.records.identity import ABOUT, Identity, about_bytes, read_about
from layoutlab.records.lines import Record, scan

WORKLOADS, RECORDS, SPENT = "workloads.jsonl", "records.jsonl", "spent.json"
_SPENT_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """Trials of one workload that were spent but whose records are not kept; `failed` of them gave no time."""

    workload: int
    trials: int
    failed: int


@dataclass(frozen=True, kw_only=True)
class RecordSet:
    """Records and what they belong to. `workloads` are lines with their newline; numbers are positions there."""

    identity: Identity
    workloads: tuple[bytes, ...]
    records: tuple[Record, ...]
    dropped: tuple[Dropped, ...] = ()

    @property
    def trials(self) -> int:
        """Trials that were spent, kept or not."""
        return len(self.records) + sum(dropped.trials for dropped in self.dropped)

    @property
    def failed(self) -> int:
        """Trials that gave no time, kept or not."""
        return sum(record.failed for record in self.records) + sum(dropped.failed for dropped in self.dropped)

    def contents(self) -> dict[str, bytes]:
        """The files of the set but about.json, uncompressed."""
        plain = {WORKLOADS: b"".join(self.workloads), RECORDS: b"".join(record.line() for record in self.records)}
        return plain | ({SPENT: spent_bytes(self.dropped)} if self.dropped else {})


def read_set(folder: Path) -> RecordSet:
    """The set in `folder`; damaged lines are left out, and the files stay as they are.

    Raises UsageError when there is no set or it cannot be read.
    """
    identity = read_about(folder)
    # Records first: the tuner writes a record's workload before it.
    records = _read(folder, RECORDS)
    found = scan(_read(folder, WORKLOADS), records)
    return RecordSet(
        identity=identity,
        workloads=found.workloads,
        records=found.records,
        dropped=renumbered(read_spent(folder), found.numbers),
    )


def find_sets(folder: Path) -> list[Path]:
    """The record sets in `folder` and below, in the order of their paths; those being written are left out."""
    found = [path.parent for path in folder.rglob(ABOUT)]
    return sorted(path for path in found if not any(part[0] == "." for part in path.relative_to(folder).parts))


def write_set(folder: Path, records: RecordSet) -> None:
    """Write a set to a new folder, compressed: the same set is the same bytes each time.

    The folder is whole or absent. Raises UsageError when it holds something already.
    """
    require_free(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
        try:
            for name, data in {ABOUT: about_bytes(records.identity), **compressed(records.contents())}.items():
                (partial / name).write_bytes(data)
            partial.chmod(0o755)
            os.replace(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error.strerror}") from error


def require_free(folder: Path) -> None:
    """Raise UsageError when `folder` holds something already."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already: remove it first, or name another folder")


def compressed(contents: dict[str, bytes]) -> dict[str, bytes]:
    """The files with the two large ones compressed, without the time of day."""
    return {
        (f"{name}.gz" if name != SPENT else name): (gzip.compress(data, mtime=0) if name != SPENT else data)
        for name, data in contents.items()
    }


def is_compressed(folder: Path) -> bool:
    """Whether the records of a set are compressed."""
    return not (folder / RECORDS).exists() and (folder / f"{RECORDS}.gz").exists()


def read_spent(folder: Path) -> tuple[Dropped, ...]:
    """What spent.json counts; nothing when it is absent. Raises UsageError when it is damaged."""
    path = folder / SPENT
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
        if data["format"] != _SPENT_FORMAT:
            raise UsageError(f"{path} has format {data['format']}, and this layoutlab reads format {_SPENT_FORMAT}")
        return tuple(Dropped(**{key: int(item[key]) for key in Dropped.__annotations__}) for item in data["dropped"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{path} cannot be read ({error}): restore it, or remove it with the records") from None


def spent_bytes(dropped: Sequence[Dropped]) -> bytes:
    """The content of spent.json."""
    rows = [vars(item) for item in sorted(dropped, key=lambda item: item.workload)]
    return (json.dumps({"format": _SPENT_FORMAT, "dropped": rows}, indent=1) + "\n").encode()


def renumbered(dropped: Sequence[Dropped], numbers: dict[int, int]) -> tuple[Dropped, ...]:
    """The counts under the new numbers of their workloads, summed where these fall together."""
    trials: Counter[int] = Counter()
    failed: Counter[int] = Counter()
    for item in dropped:
        if item.workload in numbers:
            trials[numbers[item.workload]] += item.trials
            failed[numbers[item.workload]] += item.failed
    return tuple(Dropped(workload=number, trials=trials[number], failed=failed[number]) for number in sorted(trials))


def _read(folder: Path, name: str) -> bytes:
    try:
        if (folder / name).exists():
            return (folder / name).read_bytes()
        return gzip.decompress((folder / f"{name}.gz").read_bytes())
    except FileNotFoundError:
        return b""
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{folder / name}.gz cannot be read ({error}): get the set again") from None
