"""How much memory a group of processes has, and how much it may have.

A malformed model or a hook may ask for memory without end. The kernel would then end any process of this machine; a
limit on address space (RLIMIT_AS) is no help, for TVM, LLVM and qemu reserve far more than they use. So what is really
resident is looked at now and then, and the group is ended by its parent.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from layoutlab.errors import UsageError

# Gibibytes that the processes of one job may have in all, in place of the share below.
LIMIT_VARIABLE = "LAYOUTLAB_MEMORY_GIB"
_SHARE = 0.75
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Reading one process's size takes microseconds, finding all of a group about a millisecond.
_LEADER_S, _GROUP_S = 0.5, 2.0


def machine_limit_bytes() -> int:
    """What the processes of one job may have: LAYOUTLAB_MEMORY_GIB, else three quarters of this machine's memory.

    In a container, of what its control group allows.
    """
    if text := os.environ.get(LIMIT_VARIABLE):
        return _asked_bytes(text)
    sizes = [_PAGE_BYTES * os.sysconf("SC_PHYS_PAGES")]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # not there, or "max"
            sizes.append(int((Path("/sys/fs/cgroup") / name).read_text()))
    return int(min(sizes) * _SHARE)


def _asked_bytes(text: str) -> int:
    with contextlib.suppress(ValueError, OverflowError):
        if (asked := int(float(text) * (1 << 30))) > 0:
            return asked
    raise UsageError(f"{LIMIT_VARIABLE}: expected a number of GiB above 0, such as 8 or 0.5, found {text!r}")


class MemoryWatch:
    """Looks at the memory of a process group, as often as it is asked to and not too often."""

    def __init__(self, group: int, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._group = group
        self._leader_at = self._group_at = time.monotonic()

    def exceeded(self) -> bool:
        """Whether the group has more than the limit, as far as it is time to look again."""
        now = time.monotonic()
        if now - self._leader_at < _LEADER_S:
            return False
        self._leader_at = now
        used = _private_bytes(self._group)
        if used <= self.limit_bytes and now - self._group_at < _GROUP_S:
            return False
        self._group_at = now
        # Forked processes share memory that both have as their own; only the slower figure counts it once.
        return all(_sum(size, self._group) > self.limit_bytes for size in (_private_bytes, _share_bytes))


def _sum(size: Callable[[int], int], group: int) -> int:
    return sum(size(process) for process in _processes(group))


def _processes(group: int) -> Iterator[int]:
    """The processes of a group that there are now."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError):
                stat = Path("/proc", name, "stat").read_bytes()
                # The name of the program, in brackets, may hold anything.
                if int(stat[stat.rindex(b")") + 2 :].split()[2]) == group:
                    yield int(name)


def _private_bytes(process: int) -> int:
    """Resident memory that is no file's, 0 for a process that is gone."""
    try:
        pages = Path(f"/proc/{process}/statm").read_bytes().split()
        return (int(pages[1]) - int(pages[2])) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def _share_bytes(process: int) -> int:
    """Resident memory with each shared page counted in parts; without that figure, what is private."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return _private_bytes(process)
