"""Linking what TVM compiled into a shared library, for this machine or for a simulated aarch64 core."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from layoutlab.device.base import DeviceKind
from layoutlab.errors import StageError, first_message

# What `export_library` calls: (output path, object files, keyword options).
Linker = Callable[..., None]


def linker_for(device_kind: DeviceKind) -> Linker | None:
    """The linker for a kind of device; None means TVM's own choice, which is this machine's C compiler."""
    if device_kind != "kryo":
        return None
    from layoutlab.device.kryo.installed import require

    return _zig_linker(str(require().zig))


def _zig_linker(zig: str) -> Linker:
    def link(output: str, objects: str | Sequence[str], options: Any = None, **_: Any) -> None:
        names = [objects] if isinstance(objects, str) else list(objects)
        # The objects are position independent and bring all they need but libc and libm, which every process that
        # loads the library has: LLVM's linker alone does, in milliseconds.
        done = subprocess.run([zig, "ld.lld", "-shared", "-o", output, *names], capture_output=True, text=True)
        if done.returncode:
            raise StageError("build", f"ld.lld: {first_message(done.stderr)}")

    return link
