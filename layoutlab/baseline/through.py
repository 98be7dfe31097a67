"""Running a program where the baseline is measured: here, on a phone through adb, or on a board through ssh.

No program ever gets its arguments from a string that a shell of this machine reads. Those of adb and ssh are read by
the device's shell, so each is quoted. Nothing waits without a deadline.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from layoutlab.errors import BaselineError, DeviceError, first_message

# A model of 100 MB takes a second or two over USB; WLAN may be a hundred times slower.
_PUSH_TIMEOUT_S = 600.0
_SHORT_TIMEOUT_S = 60.0
_HINTS = {
    "adb": "Connect the phone, allow USB debugging on it, and see that `adb devices` lists it",
    "ssh": "It has to be reached without a password: try `ssh {address} true`",
}
# What adb says itself, as opposed to the program that it runs.
_ADB_ERROR = re.compile(r"^(?:adb: error: |adb: |error: )(.*)", re.MULTILINE)
_SHA256 = re.compile(r"^\\?([0-9a-f]{64})\b", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a program ended, and what it wrote to both its outputs."""

    code: int
    text: bytes


@dataclass(frozen=True, kw_only=True)
class Through:
    """`local`, `adb` (the only phone), `adb:SERIAL` or `ssh:HOST`; `address` is the serial or the host."""

    kind: str
    address: str = ""

    @staticmethod
    def parse(text: str) -> Through:
        """From the spec's form."""
        kind, _, address = text.partition(":")
        return Through(kind=kind, address=address)

    def __str__(self) -> str:
        return f"{self.kind}:{self.address}" if self.address else self.kind

    @property
    def folder(self) -> str:
        """Where files go on the device: where programs of `adb shell` may write, or the temporary folder."""
        return "/data/local/tmp" if self.kind == "adb" else "/tmp"

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The command of this machine that runs these arguments on the device."""
        if self.kind == "adb":
            return [*self._adb(), "shell", shlex.join(arguments)]
        if self.kind == "ssh":
            return self._ssh(shlex.join(arguments))
        return list(arguments)

    def run(self, arguments: Sequence[str], timeout_s: float, log: Path) -> Done:
        """Run a program on the device, its output in the file `log`.

        Raises DeviceError when the device is not reached or the time is over, BaselineError when it cannot start.
        """
        done = self._start(self.command(arguments), timeout_s, log)
        if done.code in (126, 127):
            raise BaselineError(f"{self}: {arguments[0]} does not run: {first_message(_text(done))}")
        return done

    def sha256(self, program: str, log: Path) -> str | None:
        """The hash of a program on the device; None where the device cannot tell."""
        done = self._start(self.command(["sha256sum", program]), _SHORT_TIMEOUT_S, log)
        found = _SHA256.search(_text(done))
        return found[1] if found else None

    def push(self, file: Path, target: str, log: Path) -> None:
        """Copy a file to the device, unless it is there; half a copy never has its name."""
        # By its output, for adb of old phones has no exit codes.
        if target in _text(self._start(self.command(["ls", target]), _SHORT_TIMEOUT_S, log)).splitlines():
            return
        part = f"{target}.part"
        if self.kind == "adb":
            copied = self._start([*self._adb(), "push", str(file), part], _PUSH_TIMEOUT_S, log)
        else:
            copied = self._start(self._ssh(f"cat > {shlex.quote(part)}"), _PUSH_TIMEOUT_S, log, stdin=file)
        moved = self._start(self.command(["mv", part, target]), _SHORT_TIMEOUT_S, log) if copied.code == 0 else copied
        if moved.code:
            raise DeviceError(f"{self}: cannot copy the model to {target}: {first_message(_text(moved))}")

    def _adb(self) -> list[str]:
        return ["adb", "-s", self.address] if self.address else ["adb"]

    def _ssh(self, line: str) -> list[str]:
        return ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", self.address, line]

    def _start(self, command: list[str], timeout_s: float, log: Path, stdin: Path | None = None) -> Done:
        log.parent.mkdir(parents=True, exist_ok=True)
        # A file, not a pipe: whatever the program leaves behind cannot keep us waiting for the end of its output.
        with open(log, "wb") as output, open(stdin or os.devnull, "rb") as given:
            try:
                process = subprocess.Popen(
                    command, stdin=given, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
                )
            except OSError as error:
                raise self._cannot_start(command[0], error) from error
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                raise DeviceError(f"{self}: {command[0]} did not end within {timeout_s:g} s (log: {log})") from None
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        done = Done(code=code, text=log.read_bytes())
        self._refuse_lost(done)
        return done

    def _cannot_start(self, program: str, error: OSError) -> Exception:
        if self.kind == "local":
            return BaselineError(f"cannot run {program}: {error.strerror}")
        return DeviceError(f"{self}: {program} does not start on this machine: {error.strerror}. Install it")

    def _refuse_lost(self, done: Done) -> None:
        """The device was not reached, or was lost: what adb and ssh say about it themselves."""
        said = _ADB_ERROR.findall(_text(done)) if self.kind == "adb" and done.code else []
        if self.kind == "ssh" and done.code == 255:
            said = [first_message(_text(done))]
        if said:
            raise DeviceError(f"{self}: {said[-1].rstrip('.')}. {_HINTS[self.kind].format(address=self.address)}")


def _text(done: Done) -> str:
    # Without the notices of a daemon that adb started.
    return "\n".join(
        line for line in done.text.decode(errors="replace").splitlines() if not line.startswith("* daemon")
    )
