"""Provisioning the simulated core: everything is downloaded, unpacked and compiled into a cache folder, without root.

Each folder is filled beside its final place and renamed when it is whole, so an interruption leaves nothing that could
be taken for a core.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from layoutlab.device.kryo import recipe
from layoutlab.device.kryo.commands import size
from layoutlab.device.kryo.installed import found, is_downloaded, read_record
from layoutlab.device.kryo.make import Say, make, make_base
from layoutlab.device.kryo.requirements import DOWNLOAD_BYTES, NEEDED_BYTES, Problem, missing
from layoutlab.device.kryo.toolchain import Toolchain
from layoutlab.errors import DeviceError

__all__ = ["DOWNLOAD_BYTES", "Problem", "found", "is_downloaded", "missing", "provision"]

_REMOVE_TRIES = 50


def provision(say: Say, show: Say) -> Toolchain:
    """The simulated core, made first when there is none: about a minute and 330 MB of downloads, once.

    `say` prints a line that stays, `show` replaces a changing one. When another process is provisioning, waits for
    it. Raises DeviceError, and leaves nothing behind, when this machine cannot provision or anything fails.
    """
    ready = found()
    if ready:
        return ready
    try:
        with _locked(_headed(show)):
            return found() or _provision(_headed(say), _headed(show))
    except OSError as error:
        raise DeviceError(
            f"{error.filename or recipe.cache_folder()}: {error.strerror}. The simulated Kryo core needs a folder that "
            f"can be written to and has {size(NEEDED_BYTES)} free; LAYOUTLAB_CACHE names another one"
        ) from error


def _headed(tell: Say) -> Say:
    return lambda text: tell(f"simulated Kryo core: {text}")


def _provision(say: Say, show: Say) -> Toolchain:
    started = time.monotonic()
    for leftover in recipe.cache_folder().glob("kryo*.partial"):
        _remove(leftover)
    base, folder = recipe.base_folder(), recipe.folder()
    what = "compiled its plugin anew"
    if not is_downloaded():
        _require(missing())
        _build(base, lambda partial: make_base(partial, show))
        what = f"downloaded {size(read_record(base)['sizes']['downloaded_bytes'])}"
    _build(folder, lambda partial: make(partial, base, show))
    core = found()
    if core is None:
        raise DeviceError(f"{folder}: it was changed while it was made. Delete it and run again")
    unpacked = size(core.sizes["unpacked_bytes"])
    say(f"{what}, {unpacked} unpacked in {base}, {core.summary()} (once, {time.monotonic() - started:.0f} s)")
    if old := [str(path) for path in sorted(base.parent.glob("kryo-base-*")) if path != base]:
        say(f"made by another version of layoutlab, and may be deleted: {', '.join(old)}")
    return core


def _require(problems: list[Problem]) -> None:
    if problems:
        text = "\n".join(f"  {problem}" for problem in problems)
        raise DeviceError(f"the simulated Kryo core cannot be provisioned on this machine:\n{text}")


@contextlib.contextmanager
def _locked(show: Say) -> Iterator[None]:
    cache = recipe.cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "kryo.lock", "w") as lock:
        # Inherited by the programs that are run: should this process be killed, the next one waits for them to end.
        os.set_inheritable(lock.fileno(), True)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            show("waiting for another process that provisions it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(folder: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` make the contents in a folder beside `folder`, and rename that into place."""
    partial = folder.with_name(f"{folder.name}.partial")
    try:
        partial.mkdir()
        fill(partial)
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
    finally:
        _remove(partial)


def _remove(folder: Path) -> None:
    # A program that was ended a moment ago may have children that write their last.
    for _ in range(_REMOVE_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)
