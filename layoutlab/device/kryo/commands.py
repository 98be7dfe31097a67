"""Running the programs that provisioning needs, with their own words in the error when one fails."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from layoutlab.errors import DeviceError

_TICK_S = 0.3
_LINES = 6

Tick = Callable[[], None]


class Done(NamedTuple):
    """A program that ended."""

    code: int
    stdout: str
    stderr: str


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    tick: Tick = lambda: None,
    folder: Path | None = None,
) -> Done:
    """Run a program to its end, calling `tick` now and then. An interrupt ends it with all that it started."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C.UTF-8", **(environment or {})},
            start_new_session=True,
            # Passes on the lock of `provision`.
            close_fds=False,
        )
        try:
            _wait(process, tick)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return Done(process.returncode, _text(stdout), _text(stderr))


def check(done: Done, doing: str, advice: str, before: str = "") -> str:
    """The standard output of what went well; else DeviceError with the last lines of what was said."""
    if done.code == 0:
        return done.stdout
    how = f"killed by signal {-done.code}" if done.code < 0 else f"exit code {done.code}"
    said = [*_last_lines(before), *_last_lines(done.stderr.strip() or done.stdout)]
    raise DeviceError("\n".join([f"{doing} failed ({how}):", *(f"  {line}" for line in said), advice]))


def _wait(process: subprocess.Popen[bytes], tick: Tick) -> None:
    while True:
        try:
            process.wait(timeout=_TICK_S)
            return
        except subprocess.TimeoutExpired:
            tick()


def _text(stream: object) -> str:
    stream.seek(0)  # type: ignore[attr-defined]
    return str(stream.read().decode(errors="replace"))  # type: ignore[attr-defined]


def _last_lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return list(dict.fromkeys(lines))[-_LINES:]


def bytes_below(folder: Path) -> int:
    """The bytes of all files; those that come and go meanwhile count or not."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total


def size(count: int) -> str:
    """`298 MB`, `1.1 GB`."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
