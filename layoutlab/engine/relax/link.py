"""Linking what TVM compiled into a shared library: for this machine, a simulated aarch64 core, or any device."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from layoutlab.device.base import DeviceKind
from layoutlab.errors import StageError, first_message

# What `export_library` calls: (output path, object files, keyword options).
Linker = Callable[..., None]


def linker_for(device_kind: DeviceKind) -> Linker | None:
    """The linker for a kind of device; None means TVM's own choice, which is this machine's C compiler."""
    if device_kind == "host":
        return None
    # Pages of 16 KiB are what Android asks for since version 15; elsewhere they do no harm.
    options = ("-z", "max-page-size=16384") if device_kind == "rpc" else ()
    return _zig_linker(zig_for(device_kind), *options)


def zig_for(device_kind: DeviceKind) -> str:
    """The zig that compiles and links for a kind of device other than this machine.

    Raises StageError when the package ziglang is not installed, DeviceError when the simulated core is not provisioned.
    """
    if device_kind == "kryo":
        from layoutlab.device.kryo.installed import require

        return str(require().zig)
    package = importlib.util.find_spec("ziglang")
    if package is None or package.origin is None:
        raise StageError(
            "build", "nothing here links for other machines: pip install 'layoutlab[rpc]', which brings zig"
        )
    return str(Path(package.origin).with_name("zig"))


def _zig_linker(zig: str, *options: str) -> Linker:
    def link(output: str, objects: str | Sequence[str], _options: Any = None, **_: Any) -> None:
        names = [objects] if isinstance(objects, str) else list(objects)
        # The objects are position independent and bring all they need but libc and libm, which every process that
        # loads the library has: LLVM's linker alone does, in milliseconds.
        done = subprocess.run(
            [zig, "ld.lld", "-shared", *options, "-o", output, *names], capture_output=True, text=True
        )
        if done.returncode:
            raise StageError("build", f"ld.lld: {first_message(done.stderr)}")

    return link
