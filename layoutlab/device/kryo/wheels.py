"""Wheels, for the guest or for this machine, unpacked into a folder by pip."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from layoutlab.device.kryo.commands import check, run

_ADVICE = "Check the network and pip's settings (`python -m pip config list`), then run again"
_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux2014", "manylinux_2_17")


def guest_tags(python: str) -> list[str]:
    """pip's options for wheels that run in the guest, whose Python is `python`, such as 3.11."""
    options = ["--python-version", python, "--implementation", "cp"]
    for platform in _PLATFORMS:
        options += ["--platform", f"{platform}_aarch64"]
    for abi in (f"cp{python.replace('.', '')}", "abi3", "none"):
        options += ["--abi", abi]
    return options


@dataclass(frozen=True)
class Wheels:
    """Exact versions of packages, as wheels of certain tags (pip's options; none: of this machine), in `folder`."""

    title: str
    versions: Mapping[str, str]
    tags: list[str]
    folder: Path

    def files(self) -> list[Path]:
        """What was downloaded."""
        return sorted(self.folder.glob("*.whl"))

    def bytes_so_far(self) -> int:
        """How much of the downloads is there, while they are going on."""
        total = 0
        # pip downloads into temporary folders, and moves what it has at the end.
        for path in [*self._temporary.rglob("*.whl"), *self.files()]:
            with contextlib.suppress(OSError):
                total += path.stat().st_size
        return total

    def download(self, tick: Callable[[], None]) -> None:
        """Download them. Raises DeviceError when one cannot be had."""
        named = [f"{name}=={version}" for name, version in self.versions.items()]
        self._pip("download", ["--dest", str(self.folder), *named], f"downloading {', '.join(named)}", tick)

    def install(self, into: Path, tick: Callable[[], None]) -> None:
        """Unpack them into a folder for PYTHONPATH."""
        files = map(str, self.files())
        options = ["--no-index", "--no-compile", "--target", str(into)]
        self._pip("install", [*options, *files], f"unpacking {self.title} into {into}", tick)

    @property
    def _temporary(self) -> Path:
        return self.folder / "temporary"

    def _pip(self, command: str, arguments: list[str], doing: str, tick: Callable[[], None]) -> None:
        self._temporary.mkdir(parents=True, exist_ok=True)
        tick()
        done = run(
            [sys.executable, "-m", "pip", command, "-q", "--no-deps", "--only-binary=:all:", *self.tags, *arguments],
            # Temporary files lie where their growth is seen, and where there is space.
            environment={"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "TMPDIR": str(self._temporary)},
            tick=tick,
        )
        check(done, doing, _ADVICE)
