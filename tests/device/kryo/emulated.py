"""An agent on aarch64: the simulated core's Python and TVM under plain qemu, which counts nothing."""

from __future__ import annotations

import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import layoutlab
from layoutlab.device.kryo.toolchain import Toolchain

from ..agents import serving


def emulated_agent(
    toolchain: Toolchain, folder: Path, *options: str
) -> AbstractContextManager[tuple[subprocess.Popen[str], int]]:
    """Start it with options of `layoutlab agent` (6 to 12 s); gives its process and its port.

    `folder` is an empty one for what it writes.
    """
    # The guest finds this package, and nothing else of this machine's.
    (folder / "path").mkdir()
    (folder / "path" / "layoutlab").symlink_to(Path(layoutlab.__file__).resolve().parent)
    environment = {
        "PYTHONHOME": "/usr",
        "PYTHONPATH": f"{toolchain.site}:{folder / 'path'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "PATH": "/usr/bin:/bin",
        # GLib's own allocator, which qemu uses, does not survive a fork.
        "G_SLICE": "always-malloc",
    }
    command = [*toolchain.qemu, "-cpu", "cortex-a72", "-0", "/usr/bin/python3", toolchain.python]
    return serving(
        list(map(str, [*command, "-m", "layoutlab.agent", "--port", "0", *options])),
        "agent",
        env=environment,
        cwd=folder,
    )
