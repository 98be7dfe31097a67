"""The record of a run: an append-only file of events, from which everything shown is rebuilt.

`events.jsonl` holds one JSON object per line, `{"kind": ..., ...}`; the first says the format's version. A line is
written in one piece and synced, so a kill loses at most the line being written; a torn last line is cut off when
the file is opened again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from layoutlab.errors import StoreError
from layoutlab.links import require_within

FORMAT = 1

# What is wrong with a disk or a folder, and not with what is written there: what to do about it.
_ROOM = "make room there and run the same command again: everything that was finished is kept"
_ELSEWHERE = "make it writable, or choose another folder with --results"
_WHAT_TO_DO = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: _ROOM,
    errno.EROFS: _ELSEWHERE,
    errno.EACCES: _ELSEWHERE,
    errno.EPERM: _ELSEWHERE,
    errno.EIO: "the disk fails: choose another folder with --results",
}

# Those that nothing but writing can come to.
_OF_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def cannot_write(folder: Path | str, error: OSError) -> StoreError:
    """The error that says why a folder cannot be written to, and what to do where that is known."""
    advice = f". To go on, {_WHAT_TO_DO[error.errno]}" if error.errno in _WHAT_TO_DO else ""
    return StoreError(f"cannot write to {folder}: {error.strerror}{advice}")


class Store:
    """The events of one spec's runs, and the folder of everything they refer to. Use as a context manager.

    While it is open no other process can open it: StoreError says who has it. What a full or read-only disk does to
    anybody who works within the context becomes a StoreError as well. `on_event` is told each new event.
    """

    def __init__(self, folder: Path, on_event: Callable[[dict[str, Any]], None] = lambda event: None) -> None:
        self.folder = folder
        self._on_event = on_event
        self.events: list[dict[str, Any]] = []
        self._file = self._lock = -1

    def __enter__(self) -> Store:
        require_within(self.folder, _results(self.folder))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            path = self.folder / "events.jsonl"
            self.events, whole_bytes = _read(path)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            if os.fstat(self._file).st_size > whole_bytes:
                # What a kill left of a line.
                os.ftruncate(self._file, whole_bytes)
            if not self.events:
                self.append("format", version=FORMAT)
        except BaseException as error:
            self._close()
            if isinstance(error, OSError):
                raise cannot_write(self.folder, error) from error
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()
        if isinstance(error, OSError) and error.errno in _OF_WRITING:
            raise cannot_write(error.filename or self.folder, error) from error

    def _close(self) -> None:
        for file in (self._file, self._lock):
            if file >= 0:
                os.close(file)
        self._file = self._lock = -1

    def _take_lock(self) -> None:
        path = self.folder / "lock"
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = path.read_text().strip() or "unknown"
            raise StoreError(
                f"another run is using {self.folder} (process {owner}): wait for it to end, or end it"
            ) from None
        os.truncate(self._lock, 0)
        os.write(self._lock, f"{os.getpid()}\n".encode())

    def append(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Write one event and sync it to disk; returns it."""
        event = {"kind": kind, **fields}
        self._write(json.dumps(event, sort_keys=False, separators=(",", ":")).encode() + b"\n")
        self.events.append(event)
        self._on_event(event)
        return event

    def _write(self, line: bytes) -> None:
        """Append the whole line, or nothing: a disk that gets full takes the first part of it."""
        before = os.fstat(self._file).st_size
        try:
            while line:
                line = line[os.write(self._file, line) :]
            os.fsync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, before)
            raise cannot_write(self.folder, error) from error

    def find(self, kind: str, **fields: Any) -> dict[str, Any] | None:
        """The last event of this kind whose fields have these values."""
        return next(iter(self.all(kind, **fields)[::-1]), None)

    def last_run(self) -> list[dict[str, Any]]:
        """The events of the last run, its own `run` event first; empty before any run.

        Those of a later `layoutlab aa`, which may build other artifacts, are left out.
        """
        starts = [position for position, event in enumerate(self.events) if event["kind"] == "run"]
        last = self.events[starts[-1] :] if starts else []
        end = next((position for position, event in enumerate(last) if event["kind"] == "aa"), len(last))
        return last[:end]

    def all(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """Every event of this kind whose fields have these values, oldest first."""
        return [
            event
            for event in self.events
            if event["kind"] == kind and all(event.get(name) == value for name, value in fields.items())
        ]


def _results(folder: Path) -> Path:
    """The folder of all results, of a run's in it: `results/runs/<spec>`."""
    return folder.parent.parent if folder.parent.name == "runs" else folder.parent


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a file, which another process may be writing; none where there is no file.

    A last line without its end is not there yet. Raises StoreError for anything else that cannot be read.
    """
    return _read(path)[0]


def _read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The events of a file, and the bytes of its whole lines; see `read_events`."""
    if not path.exists():
        return [], 0
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    events = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            events.append(json.loads(line))
        except ValueError:
            raise StoreError(
                f"{path}:{number} is not JSON: the record was changed by hand or damaged. "
                "Restore it, or remove the folder to start this spec afresh"
            ) from None
    if events and events[0].get("version") != FORMAT:
        raise StoreError(
            f"{path} has format {events[0].get('version')}, and this layoutlab reads format {FORMAT}: "
            "use the version that wrote it, or remove the folder to start afresh"
        )
    return events, len(whole)
