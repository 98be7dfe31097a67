"""What the simulated core is made from, and the folder that belongs to exactly that."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

# Debian's names. apt finds the rest of each closure; libstdc++6 is what TVM and LiteRT need besides Python.
HOST_PACKAGES = ("qemu-user", "llvm")
GUEST_PACKAGES = ("python3", "libstdc++6")

# The arm64 Pythons that every wheel below exists for.
GUEST_PYTHONS = ("3.10", "3.11", "3.12")

# Raised when `make.py` keeps other parts of the same packages, or adds other files.
EDITION = 3

# The C sources, and what each becomes.
SOURCES = Path(__file__).parent
COMPILED = {"counter.c": "counter.so", "marks.c": "marks.so"}

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def guest_wheels() -> dict[str, str]:
    """The guest's Python packages, each with its one version."""
    return {
        # The runtime that loads what this environment's TVM compiled.
        "apache-tvm": version("apache-tvm"),
        "apache-tvm-ffi": version("apache-tvm-ffi"),
        # LiteRT 2.x crashes under qemu 7.2: SIGSEGV in AllocateTensors.
        "ai-edge-litert": "1.4.0",
        "numpy": "2.2.6",
        "ml_dtypes": "0.5.3",
        "typing_extensions": "4.15.0",
        "psutil": "7.1.3",
    }


def host_wheels() -> dict[str, str]:
    """Programs for this machine that come as wheels."""
    return {"ziglang": "0.17.1"}


def compile_command(zig: Path, source: Path, output: Path) -> list[str]:
    """The command that compiles one of the C sources."""
    # The plugin is loaded by a qemu that has its own libc: neither may depend on what this machine has installed.
    machine = "aarch64" if source.name == "marks.c" else platform.machine()
    flags = ["-target", f"{machine}-linux-gnu.2.17", "-O2", "-shared", "-fPIC"]
    return [str(zig), "cc", *flags, "-o", str(output), str(source)]


def cache_folder() -> Path:
    """Where provisioned folders lie."""
    if chosen := os.environ.get("LAYOUTLAB_CACHE"):
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "layoutlab"


def base_folder() -> Path:
    """The folder of everything that is downloaded."""
    return cache_folder() / f"kryo-base-{_hash(_base_recipe())}"


def folder() -> Path:
    """The folder of what is compiled, which names the rest: a changed C source downloads nothing anew."""
    sources = {name: (SOURCES / name).read_text() for name in COMPILED}
    commands = [compile_command(Path("zig"), Path(name), Path(output)) for name, output in COMPILED.items()]
    return cache_folder() / f"kryo-{_hash([_base_recipe(), sources, commands])}"


def _base_recipe() -> list[object]:
    return [EDITION, platform.machine(), HOST_PACKAGES, GUEST_PACKAGES, guest_wheels(), host_wheels()]


def _hash(recipe: object) -> str:
    return hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:12]
