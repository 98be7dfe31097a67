"""What the simulated core is made of: programs and files of one provisioned folder."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """Where each part of the simulated core lies; `versions` says what was installed.

    Commands are prefixes: the tool's own arguments are appended. `qemu` has everything before qemu's options:
    `[*qemu, "-plugin", ..., str(program), ...]` runs an aarch64 program against the libraries of the guest.
    """

    folder: Path
    qemu: tuple[str, ...]
    python: Path  # aarch64
    site: Path  # the guest's packages, for PYTHONPATH
    llvm_mc: tuple[str, ...]
    llvm_mca: tuple[str, ...]
    zig: Path  # compiles C and links ELF for the guest and for this machine
    counter: Path  # the TCG plugin
    marks: Path  # aarch64 library with the marks around a counted region
    versions: dict[str, str]  # of Debian packages with epoch and revision, of wheels as the wheels say
    sizes: dict[str, int] = field(default_factory=dict)  # downloaded_bytes, unpacked_bytes

    def summary(self) -> str:
        """The versions that matter, in one line: `qemu-user 7.2, LLVM 14.0.6, ...`."""
        return ", ".join(f"{name} {upstream(self.versions.get(key, '?'))}" for name, key in _SHOWN.items())


_SHOWN = {
    "qemu-user": "qemu-user",
    "LLVM": "llvm",
    "Python": "python3",
    "TVM": "apache-tvm",
    "LiteRT": "ai-edge-litert",
    "zig": "ziglang",
}


def upstream(version: str) -> str:
    """`7.2` of Debian's `1:7.2+dfsg-7+deb12u18`; a version without epoch, suffix and revision stays as it is."""
    without_epoch = version.partition(":")[2] or version
    return re.split(r"[+~-]", without_epoch, maxsplit=1)[0]
