"""Where things are in provisioned folders, and the record each of them has."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layoutlab.device.kryo import recipe
from layoutlab.device.kryo.toolchain import Toolchain
from layoutlab.errors import DeviceError

_RECORD = "toolchain.json"


def found() -> Toolchain | None:
    """The simulated core, if it was provisioned and is whole."""
    folder = recipe.folder()
    try:
        core = toolchain(folder, recipe.base_folder(), **read_record(folder))
    except (OSError, ValueError, TypeError, DeviceError):
        return None
    return core if core.counter.exists() and core.marks.exists() else None


def require() -> Toolchain:
    """The simulated core. Raises DeviceError when it is not provisioned (any more)."""
    core = found()
    if core is None:
        raise DeviceError("the simulated Kryo core is not provisioned: run layoutlab provision")
    return core


def is_downloaded() -> bool:
    """Whether everything that is downloaded is there, and whole."""
    base = recipe.base_folder()
    try:
        read_record(base)
        parts(base)
    except (OSError, ValueError, DeviceError):
        return False
    return True


def toolchain(folder: Path, base: Path, versions: dict[str, str], sizes: dict[str, int]) -> Toolchain:
    """What is compiled in `folder`, on the ground of `base`. Raises DeviceError when the base lacks something."""
    found = parts(base)
    # Started by their own loader with their own libraries, whatever this machine has or lacks. (The loader of
    # the multiarch folder: the one in /lib64 is an absolute link.)
    start = (str(found["loader"]), "--library-path", str(found["loader"].parent))
    return Toolchain(
        folder=folder,
        qemu=(*start, str(found["qemu"]), "-L", str(base / "guest")),
        python=found["python"],
        site=found["site"].parent,
        llvm_mc=(*start, str(found["llvm-mc"])),
        llvm_mca=(*start, str(found["llvm-mca"])),
        zig=found["zig"],
        counter=folder / recipe.COMPILED["counter.c"],
        marks=folder / recipe.COMPILED["marks.c"],
        versions=versions,
        sizes=sizes,
    )


def read_record(folder: Path) -> dict[str, Any]:
    """`versions` and `sizes`, as `Toolchain` has them."""
    record: dict[str, Any] = json.loads((folder / _RECORD).read_text())
    return record


def write_record(folder: Path, versions: Mapping[str, str], sizes: Mapping[str, int]) -> None:
    """The last thing written into a folder before it is whole."""
    (folder / _RECORD).write_text(json.dumps({"versions": versions, "sizes": sizes}, indent=1) + "\n")


def parts(base: Path) -> dict[str, Path]:
    """Where things are in the base. Raises DeviceError naming the first that is not there."""
    machine = platform.machine()
    patterns = {
        "loader": f"host/usr/lib/{machine}-linux-gnu/ld-linux-*.so.*",
        "qemu": "host/usr/bin/qemu-aarch64",
        "llvm-mc": "host/usr/lib/llvm-*/bin/llvm-mc",
        "llvm-mca": "host/usr/lib/llvm-*/bin/llvm-mca",
        "python": "guest/usr/bin/python3.*",
        "site": "site/tvm",
        "zig": "zig/ziglang/zig",
    }
    found = {}
    for name, pattern in patterns.items():
        path = next(base.glob(pattern), None)
        if path is None:
            raise DeviceError(f"{base}: {pattern} is not there. Delete the folder and run again")
        found[name] = path
    return found
