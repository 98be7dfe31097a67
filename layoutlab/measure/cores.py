"""Which cores a measurement runs on: the clusters of big.LITTLE machines, and pinning to some of them.

Only the standard library: this runs on the device itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from layoutlab.errors import DeviceError
from layoutlab.measure.sysfs import SYSFS, core_folders, read_int

# How the kernel tells fast cores from slow ones; the first that is readable for every usable core decides.
# cpu_capacity (Arm): the fastest core is 1024. cpuinfo_max_freq: kHz.
_SPEEDS = ("cpu_capacity", "cpufreq/cpuinfo_max_freq")
# Cores that a CPU may boost a little higher than others are no cluster of their own: desktop CPUs have such
# favoured cores, 2 to 5 % above the rest. Clusters of phones differ by more.
_ONE_CLUSTER = 0.95


def usable_cores() -> tuple[int, ...]:
    """The cores this thread may run on."""
    if not hasattr(os, "sched_getaffinity"):
        return tuple(range(os.cpu_count() or 1))
    return tuple(sorted(os.sched_getaffinity(0)))


def clusters(usable: Sequence[int], root: Path = SYSFS) -> list[tuple[int, ...]]:
    """Groups of cores that are equally fast, the fastest group first.

    Cores that are not `usable` are in them too: whether the big ones are usable is another question. One group
    with the usable cores when nothing is readable.
    """
    folders = core_folders(root)
    for name in _SPEEDS:
        read = {core: read_int(folder / name) for core, folder in folders.items()}
        speeds = {core: speed for core, speed in read.items() if speed}
        if speeds and set(usable) <= set(speeds):
            return _grouped(speeds)
    return [tuple(sorted(usable))]


def _grouped(speeds: dict[int, int]) -> list[tuple[int, ...]]:
    groups: list[list[int]] = []
    fastest = 0
    for core, speed in sorted(speeds.items(), key=lambda item: -item[1]):
        if not groups or speed < _ONE_CLUSTER * fastest:
            groups.append([])
            fastest = speed
        groups[-1].append(core)
    return [tuple(sorted(group)) for group in groups]


def choose_cores(
    wanted: str | Sequence[int], threads: int, usable: Sequence[int] | None = None, root: Path = SYSFS
) -> tuple[int, ...] | None:
    """The cores to pin to; None: all usable ones, which needs no pinning.

    `wanted` is `big` (the fastest cluster; on a machine of equal cores all of them), `little` (the slowest), `all`,
    or core numbers. `usable` is by default what this thread may run on. Raises DeviceError when the machine has no
    such cores, or fewer of them than `threads`.
    """
    usable = usable_cores() if usable is None else usable
    found = clusters(usable, root)
    if isinstance(wanted, str):
        chosen = _named(wanted, found, usable)
    else:
        chosen = tuple(sorted(wanted))
        if missing := [core for core in chosen if core not in usable]:
            raise DeviceError(
                f"measure.cores: {name_cores(missing)} cannot be used here: there are {describe(found, usable)}"
            )
    if threads > len(chosen):
        asked = wanted if isinstance(wanted, str) else "a list"
        raise DeviceError(
            f"{threads} threads need {threads} cores, but measure.cores: {asked} has {name_cores(chosen)}: there are "
            f"{describe(found, usable)}. Choose more cores (measure.cores) or fewer threads (baseline.threads)"
        )
    return None if set(chosen) == set(usable) else chosen


def _named(wanted: str, found: list[tuple[int, ...]], usable: Sequence[int]) -> tuple[int, ...]:
    if wanted == "all" or (wanted == "big" and len(found) == 1):
        return tuple(usable)
    if len(found) == 1:
        raise DeviceError(
            f"measure.cores: {wanted} needs clusters of different cores, and here all cores are alike, as far as that "
            f"can be read: there are {describe(found, usable)}. Choose big, all or a list"
        )
    cluster = found[0] if wanted == "big" else found[-1]
    chosen = tuple(core for core in cluster if core in usable)
    if not chosen:
        raise DeviceError(
            f"measure.cores: {wanted} means {name_cores(cluster)}, and this process may use none of them: there are "
            f"{describe(found, usable)}"
        )
    return chosen


def describe(found: list[tuple[int, ...]], usable: Sequence[int]) -> str:
    """The clusters in words, and which of their cores are usable when that is not all."""
    if len(found) == 1:
        return f"{name_cores(found[0])}{_usable(found, usable)}"
    names = ["big", *["middle"] * (len(found) - 2), "little"]
    listed = ", ".join(f"{name_cores(cluster)} ({name})" for name, cluster in zip(names, found, strict=True))
    return listed + _usable(found, usable)


def _usable(found: list[tuple[int, ...]], usable: Sequence[int]) -> str:
    everything = {core for cluster in found for core in cluster}
    return "" if everything <= set(usable) else f", of which this process may use {name_cores(usable)}"


def name_cores(cores: Sequence[int]) -> str:
    """`core 3`, `cores 0-3,6`."""
    return f"core{'s' if len(cores) > 1 else ''} {core_ranges(cores)}"


def core_ranges(cores: Sequence[int]) -> str:
    """Core numbers with runs shortened: `0-3,6`."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


@contextmanager
def pinned(cores: Sequence[int] | None) -> Iterator[None]:
    """Keep this thread, and threads started by it from here on, to `cores`; None changes no affinity.

    TVM's pool would else bind its workers, and this thread, to cores of its own choice when it starts, which gives
    TVM other cores than TFLite. LiteRT leaves its threads where this one is. Afterwards this thread may run where
    it could before; threads that were started stay.
    """
    os.environ["TVM_BIND_THREADS"] = "0"
    if cores is None:
        yield
        return
    if not hasattr(os, "sched_setaffinity"):
        raise DeviceError(f"measure.cores: this system cannot keep a program to {name_cores(cores)}: choose all")
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        raise DeviceError(f"measure.cores: cannot keep to {name_cores(cores)}: {error.strerror}") from error
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
