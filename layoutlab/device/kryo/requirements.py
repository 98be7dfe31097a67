"""What a machine needs for the simulated core to be provisioned on it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from layoutlab.device.kryo import debian, installed, recipe, sources
from layoutlab.device.kryo.commands import size
from layoutlab.errors import DeviceError

# About; the sizes of Debian's packages change.
DOWNLOAD_BYTES = 330_000_000

# While it is made (1.4 GB were measured): downloads, 0.7 GB that stay, and what is unpacked and dropped; pip's cache.
NEEDED_BYTES = 1_700_000_000

ELSEWHERE = "Use Debian 12, Ubuntu 22.04 or 24.04, or a container of one"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something this machine lacks: what, why it is needed, and what to do about it."""

    what: str
    why: str
    todo: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}. {self.todo}"


def missing() -> list[Problem]:
    """What this machine lacks to provision the simulated core; asks nothing of the network."""
    if installed.is_downloaded():
        return []
    if platform.system() != "Linux" or platform.machine() not in recipe.ARCHITECTURES:
        what = f"{platform.system()} on {platform.machine()}"
        return [_problem(what, "the simulated core needs Linux on x86-64 or aarch64", "Use such a machine")]
    return [*_missing_programs(), *_missing_pip(), *_missing_sources(), *_missing_space()]


def _problem(what: str, why: str, todo: str) -> Problem:
    return Problem(what=what, why=why, todo=todo)


def _missing_programs() -> Iterator[Problem]:
    if lacking := debian.lacking():
        yield _problem(
            f"no {', '.join(lacking)}",
            "qemu, LLVM and an aarch64 Python come from Debian's or Ubuntu's packages",
            ELSEWHERE,
        )


def _missing_pip() -> Iterator[Problem]:
    if importlib.util.find_spec("pip") is None:
        yield _problem(
            f"no pip in {sys.prefix}",
            "TVM's runtime and LiteRT for aarch64, and zig, are downloaded with it",
            f"Run `{sys.executable} -m ensurepip`, or `uv pip install pip` if uv made the environment",
        )


def _missing_sources() -> Iterator[Problem]:
    try:
        found_sources = sources.arm64_sources()
    except DeviceError as error:
        yield _problem("no package sources for arm64", str(error), "Correct it, or unset it")
        return
    if not found_sources:
        why = "none of this machine's package sources is known to have arm64 packages"
        todo = f"Set {sources.OVERRIDE} to a file of this system's package sources for arm64"
        yield _problem("no package sources for arm64", why, todo)
    elif sources.OVERRIDE not in os.environ and (python := _machine_python()) and python not in recipe.GUEST_PYTHONS:
        yield _problem(f"python3 of this system is {python}", why_not_python(), ELSEWHERE)


def _machine_python() -> str:
    """The version of the distribution's own Python, which is the same for arm64; empty when it is not installed."""
    with contextlib.suppress(OSError):
        return os.readlink("/usr/bin/python3").rpartition("python")[2]
    return ""


def why_not_python() -> str:
    """Why not any Python can be the guest's."""
    litert = recipe.guest_wheels()["ai-edge-litert"]
    return f"LiteRT {litert} for aarch64 exists for Python {', '.join(recipe.GUEST_PYTHONS)}"


def _missing_space() -> Iterator[Problem]:
    cache = recipe.cache_folder()
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if free < NEEDED_BYTES:
        yield _problem(
            f"{size(free)} free in {existing}",
            f"provisioning needs {size(NEEDED_BYTES)}",
            "Make space, or set LAYOUTLAB_CACHE to a folder with more",
        )
