"""Reaching the device: commands as they are started, and what is said when it is not there."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from layoutlab.baseline.through import Through
from layoutlab.errors import DeviceError

ARGUMENTS = ["/data/local/tmp/benchmark_model", "--graph=/a b.tflite", "--x=$(reboot)"]
QUOTED = "/data/local/tmp/benchmark_model '--graph=/a b.tflite' '--x=$(reboot)'"


@pytest.mark.parametrize(
    ("through", "command"),
    [
        ("local", ARGUMENTS),
        ("adb", ["adb", "shell", QUOTED]),
        ("adb:10.0.0.2:5555", ["adb", "-s", "10.0.0.2:5555", "shell", QUOTED]),
        ("ssh:pi@board", ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", "pi@board", QUOTED]),
    ],
)
def test_commands(through, command):
    assert str(Through.parse(through)) == through
    assert Through.parse(through).command(ARGUMENTS) == command


def test_a_program_that_does_not_end(tmp_path):
    log = tmp_path / "log"
    with pytest.raises(DeviceError) as caught:
        Through.parse("local").run(["sh", "-c", "echo one; sleep 60 & sleep 60"], 0.5, log)
    assert str(caught.value) == f"local: sh did not end within 0.5 s (log: {log})"
    assert log.read_text() == "one\n"


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here")
def test_a_board_that_is_not_there(tmp_path):
    with pytest.raises(DeviceError) as caught:
        Through.parse("ssh:board.invalid").run(["true"], 60, tmp_path / "log")
    said = str(caught.value)
    assert said.startswith("ssh:board.invalid: ssh: Could not resolve hostname board.invalid")
    assert said.endswith(". It has to be reached without a password: try `ssh board.invalid true`")


def test_without_adb(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError) as caught:
        Through.parse("adb").run(["true"], 60, tmp_path / "log")
    assert str(caught.value) == "adb: adb does not start on this machine: No such file or directory. Install it"


@pytest.mark.skipif(shutil.which("adb") is None, reason="no adb here")
def test_a_phone_that_is_not_there(tmp_path, monkeypatch):
    """With the real adb, whose server is our own: a phone of this machine's user is not looked at."""
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(20_000 + os.getpid() % 10_000))
    hint = "Connect the phone, allow USB debugging on it, and see that `adb devices` lists it"
    try:
        phone = Through.parse("adb:NONE")
        for ask in (
            lambda: phone.run(["true"], 60, tmp_path / "log"),
            lambda: phone.push(tmp_path / "log", "/data/local/tmp/x", tmp_path / "log2"),
            lambda: phone.sha256("/data/local/tmp/benchmark_model", tmp_path / "log"),
        ):
            with pytest.raises(DeviceError) as caught:
                ask()
            assert str(caught.value) == f"adb:NONE: device 'NONE' not found. {hint}"
    finally:
        subprocess.run(["adb", "kill-server"], check=False)
