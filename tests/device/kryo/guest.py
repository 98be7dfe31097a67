"""Runs the kernels of this folder under the counting plugin: small aarch64 programs without a Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

import layoutlab.device.kryo
from layoutlab.device.kryo.counts import Block, Counts, read_counts
from layoutlab.device.kryo.toolchain import Toolchain

_KERNELS = Path(__file__).parent / "kernels"
_MARKS = Path(layoutlab.device.kryo.__file__).parent / "marks.c"


def build(toolchain: Toolchain, folder: Path) -> Path:
    program = folder / "kernels"
    sources = [_KERNELS / "main.c", _KERNELS / "kernels.S", _MARKS]
    options = ["-target", "aarch64-linux-musl", "-static", "-O2", "-o", program]
    subprocess.run([toolchain.zig, "cc", *options, *sources], check=True)
    return program


def start(toolchain: Toolchain, program: Path, out: Path, work: list[str], plugin: str = "") -> str:
    """Run the program with its arguments; `plugin` has more arguments of the plugin. Returns its standard error."""
    option = f"{toolchain.counter},out={out}" + (f",{plugin}" if plugin else "")
    result = subprocess.run([*toolchain.qemu, "-plugin", option, program, *work], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stderr


def count(
    toolchain: Toolchain,
    program: Path,
    out: Path,
    kernel: str,
    *actions: str,
    count: int,
    stride: int = 0,
    passes: int = 1,
    skip: int = 0,
    plugin: str = "",
) -> Counts:
    """The counts of the last of the regions that `actions` name (see kernels/main.c)."""
    start(toolchain, program, out, [kernel, str(count), str(stride), str(passes), str(skip), *actions], plugin)
    (path,) = out.glob("*.counts")
    counts = read_counts(path)
    path.unlink()
    return counts


def loop(counts: Counts) -> Block:
    """The block of the kernel's loop: the one that ran most often."""
    return max(counts.blocks, key=lambda block: block.executions)
