"""Which CPU, and which board or phone, this is, in the words of its kernel."""

from __future__ import annotations

import contextlib
import ctypes
import platform
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_BOARD = Path("/proc/device-tree/model")
_GETPROP_S = 2.0

# MIDR_EL1's implementer and part: the manuals of Arm's cores, and arch/arm64/include/asm/cputype.h of Linux.
_PARTS = {
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD04): "Cortex-A35",
    (0x41, 0xD05): "Cortex-A55",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD09): "Cortex-A73",
    (0x41, 0xD0A): "Cortex-A75",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse N1",
    (0x41, 0xD0D): "Cortex-A77",
    (0x41, 0xD40): "Neoverse V1",
    (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD44): "Cortex-X1",
    (0x41, 0xD46): "Cortex-A510",
    (0x41, 0xD47): "Cortex-A710",
    (0x41, 0xD48): "Cortex-X2",
    (0x41, 0xD49): "Neoverse N2",
    (0x41, 0xD4D): "Cortex-A715",
    (0x41, 0xD4E): "Cortex-X3",
    (0x41, 0xD4F): "Neoverse V2",
    (0x51, 0x201): "Kryo",
    (0x51, 0x205): "Kryo",
    (0x51, 0x211): "Kryo",
    (0x51, 0x800): "Kryo 2xx Gold",
    (0x51, 0x801): "Kryo 2xx Silver",
    (0x51, 0x802): "Kryo 3xx Gold",
    (0x51, 0x803): "Kryo 3xx Silver",
    (0x51, 0x804): "Kryo 4xx Gold",
    (0x51, 0x805): "Kryo 4xx Silver",
}

_AT_HWCAP = 16
# The words of Linux for the bits of AT_HWCAP on aarch64, from bit 0 on (arch/arm64/include/uapi/asm/hwcap.h).
_HWCAPS = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma lrcpc dcpop sha3 sm3 "
    "sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca pacg"
)


def cpu_name() -> str:
    """The CPU as the kernel names it; on Arm its kinds of cores, after the board or phone where that is known.

    What is not known is left out; in the end the architecture remains.
    """
    machine = platform.machine()
    return name_of(_read(_CPUINFO), machine, _board()) or platform.processor() or machine


def cpu_features() -> list[str]:
    """The words for what the CPU can do: "flags" on x86, "Features" on Arm; sorted, empty when they are unknown."""
    return features_of(_read(_CPUINFO), platform.machine()) or _auxiliary_features()


def name_of(cpuinfo: str, machine: str, board: str | None) -> str | None:
    """The CPU's name from the text of /proc/cpuinfo; None when that has none. `board` is what it sits on, if known."""
    processors = _processors(cpuinfo)
    model = next((fields[key] for fields in processors for key in ("model name", "Model") if fields.get(key)), None)
    kinds = Counter(_part(fields) for fields in processors if "CPU part" in fields)
    if not kinds:
        # qemu shows its programs the host's file.
        return f"emulated {machine} on {model}" if model and _is_arm(machine) else model
    cores = " + ".join(f"{count} x {kind}" for kind, count in kinds.most_common())
    where = board or model or next((fields["Hardware"] for fields in processors if fields.get("Hardware")), None)
    return f"{where}, {cores}" if where else cores


def features_of(cpuinfo: str, machine: str) -> list[str]:
    """The feature words in the text of /proc/cpuinfo that belong to the architecture `machine`, sorted."""
    key = "Features" if _is_arm(machine) else "flags"
    return sorted({word for fields in _processors(cpuinfo) for word in fields.get(key, "").split()})


def _is_arm(machine: str) -> bool:
    return machine.startswith(("aarch64", "arm"))


def _processors(cpuinfo: str) -> list[dict[str, str]]:
    """The fields of each paragraph of /proc/cpuinfo."""
    found = []
    for paragraph in cpuinfo.split("\n\n"):
        pairs = (line.partition(":") for line in paragraph.splitlines() if ":" in line)
        found.append({key.strip(): " ".join(value.split()) for key, _, value in pairs})
    return found


def _part(fields: Mapping[str, str]) -> str:
    implementer, part = (int(fields.get(key, "0"), 0) for key in ("CPU implementer", "CPU part"))
    architecture = fields.get("CPU architecture", "8")
    return _PARTS.get((implementer, part), f"ARMv{architecture} implementer {implementer:#04x} part {part:#05x}")


def _board() -> str | None:
    """The board's name from its device tree, or the phone's from Android's properties."""
    board = _read(_BOARD).strip("\0 \n")
    if board or shutil.which("getprop") is None:
        return board or None
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["getprop", "ro.product.model"], capture_output=True, text=True, timeout=_GETPROP_S)
        return done.stdout.strip() or None
    return None


def _auxiliary_features() -> list[str]:
    """What the kernel tells each program of an aarch64 CPU; qemu tells it of the CPU that it plays."""
    if platform.machine() != "aarch64":
        return []
    read = ctypes.CDLL(None).getauxval
    read.restype, read.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    bits = read(_AT_HWCAP)
    return sorted(word for bit, word in enumerate(_HWCAPS.split()) if bits >> bit & 1)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
