"""The temporary folder of a worker process: it goes with the worker, however that ends.

A worker and all that it started are killed in the end, so nothing in them gets to clean up: neither Python's process
pools, which leave sockets in the temporary folder and semaphores in shared memory, nor a linker.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Short, for the paths of sockets have to be.
_PREFIX = "layoutlab-w-"
_SHARED_MEMORY = Path("/dev/shm")
# The system's temporary folder, for what a worker starts and whose path has to be as long as ever.
_SYSTEM = "LAYOUTLAB_TMPDIR"
# Between its making and its locking a folder has no owner.
_NEW_S = 60.0


class Scratch:
    """A folder that this process owns until `remove`, or until it ends: then the next one removes it."""

    def __init__(self) -> None:
        remove_abandoned()
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = os.open(self.folder, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def environment(self) -> Mapping[str, str]:
        """What makes it the temporary folder of a process."""
        return {"TMPDIR": str(self.folder), _SYSTEM: str(system_folder())}

    def remove(self) -> None:
        """Remove it, and the semaphores of the processes that used it; these have to be gone."""
        _remove(self.folder)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def system_folder() -> Path:
    """The system's temporary folder, within a worker as well."""
    return Path(os.environ.get(_SYSTEM) or tempfile.gettempdir())


def name_semaphores() -> None:
    """Let the semaphores of this worker, and of all that it starts, carry its folder's name."""
    folder = Path(os.environ.get("TMPDIR", ""))
    if folder.name.startswith(_PREFIX):
        # Python has no public way to choose their names.
        configuration: dict[str, Any] = getattr(multiprocessing.current_process(), "_config", {})
        configuration["semprefix"] = f"/{folder.name}"


def remove_abandoned() -> None:
    """Remove the folders of processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_ctime < _NEW_S:
                continue
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(lock)


def orphaned_semaphores() -> set[Path]:
    """This user's semaphores of workers that no process has mapped: nobody will remove them.

    Those of a worker that is just being ended are among them for a moment.
    """
    inodes: dict[int, Path] = {}
    for path in _SHARED_MEMORY.glob(f"sem.{_PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):
            if (status := path.stat()).st_uid == os.getuid():
                inodes[status.st_ino] = path
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        # A process may end meanwhile, or be another user's.
        with contextlib.suppress(OSError):
            # The C library gives a semaphore its name after it has mapped it: the map shows another name, of one inode.
            for mapped in re.findall(
                rf"(\d+)\s+{_SHARED_MEMORY}/sem\.", (process / "maps").read_text(errors="replace")
            ):
                inodes.pop(int(mapped), None)
    return {path for path in inodes.values() if path.exists()}


def _remove(folder: Path) -> None:
    # A semaphore without its folder is one that nobody will remove.
    for semaphore in _SHARED_MEMORY.glob(f"sem.{folder.name}-*"):
        semaphore.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
