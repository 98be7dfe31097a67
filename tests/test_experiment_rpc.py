"""Whole experiments on devices over RPC: real trackers, agents on this machine, and an aarch64 agent under qemu."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from layoutlab.device.kryo.toolchain import Toolchain

from .conftest import TINY
from .device.agents import LAYOUTLAB, serving, wait_until
from .device.kryo.conftest import toolchain
from .device.kryo.emulated import emulated_agent

__all__ = ["toolchain"]

SPEC = """\
name: x
model: {file: model.tflite}
target: TARGET
variants:
  - {name: nhwc, alter_op_layout: keep}
  - {name: nchw4c, convert_layout: NCHW, alter_op_layout: {hook: nchwc, block: 4}, tune: false}
tuning: {trials: 12, batch: 4, population: 16, repeats: 1, min_repeat_ms: 1}
check: {inputs: 2}
measure: {rounds: 3, repeats: 2, min_repeat_ms: 20, warmup_ms: 20, retries: 0}
"""
KRYO = "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu -mcpu=kryo -mattr=+neon -num-cores=1"


def prepare(folder: Path, target: str = "host") -> Path:
    (folder / "x.yaml").write_text(SPEC.replace("TARGET", target))
    shutil.copy(TINY / "tiny_conv.tflite", folder / "model.tflite")
    return folder


def begin(folder: Path, device: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "layoutlab", "run", "x.yaml", *(["--device", device] if device else [])],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code and what it printed, without addresses."""
    out, err = process.communicate(timeout=300)
    assert "Traceback" not in err
    return process.returncode, masked(out), masked(err)


def masked(text: str) -> str:
    return re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    path = folder / "results" / "runs" / "x" / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:  # being written
            continue
        if event.get("kind") == kind:
            found.append(event)
    return found


class Fleet:
    """A tracker with devices that the tests start and end."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.agents: dict[str, subprocess.Popen[str]] = {}
        self.start_tracker("0")

    def start_tracker(self, port: str) -> None:
        command = [*LAYOUTLAB, "tracker", "--port", port]
        self.tracker, self.port = self._stack.enter_context(serving(command, "tracker"))

    def restart_tracker(self) -> None:
        self.tracker.send_signal(signal.SIGKILL)
        self.tracker.wait()
        self.start_tracker(str(self.port))

    def start_agent(self, name: str) -> None:
        command = [*LAYOUTLAB, "agent", "--port", "0", "--tracker", f"127.0.0.1:{self.port}", "--key", "pixel"]
        self.agents[name], _ = self._stack.enter_context(serving([*command, "--name", name], "agent"))

    @property
    def device(self) -> str:
        return f"rpc://127.0.0.1:{self.port}/pixel"


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with ExitStack() as stack:
        fleet = Fleet(stack)
        for name in ("dev1", "dev2"):
            fleet.start_agent(name)
        yield fleet


@pytest.fixture(scope="module")
def done(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a run on both devices, and its table."""
    folder = prepare(tmp_path_factory.mktemp("rpc"))
    code, table, err = finish(begin(folder, fleet.device))
    assert code == 0, err
    return folder, table


def test_a_table_says_on_which_device_it_was_measured(done):
    folder, table = done
    (device,) = {event["device"] for event in events(folder, "samples")}
    assert device in ("dev1", "dev2")
    assert len(events(folder, "samples")) == 9
    (line,) = [line for line in table.splitlines() if line.startswith("device: ")]
    assert re.sub(r"dev\d", "DEVICE", re.sub("on .*, over", "on a CPU (x86_64), over", line)) == (
        "device: runs on a CPU (x86_64), over RPC, the device DEVICE at rpc://ADDRESS/pixel"
    )
    rows = [line.split()[0] for line in table.splitlines()[4:7]]
    assert rows == ["nhwc", "nchw4c", "tflite"]


def test_a_second_run_does_nothing_anew(done, fleet):
    folder, table = done
    before = [len(events(folder, kind)) for kind in ("built", "samples")]
    # The environment names the device for a spec that says auto.
    code, again, _ = finish(begin(folder, "", LAYOUTLAB_DEVICE=fleet.device))
    assert code == 0
    assert [len(events(folder, kind)) for kind in ("built", "samples")] == before
    assert again.splitlines()[4:7] == table.splitlines()[4:7]


def test_no_device(tmp_path, fleet):
    prepare(tmp_path)
    code, _, err = finish(begin(tmp_path, fleet.device + "s"))
    assert code == 3
    assert re.sub(r"\d free", "N free", err) == (
        'error: the tracker at ADDRESS knows no device with the key "pixels": did you mean "pixel"? Known there: pixel '
        "(2 devices, N free). Give another key, or run on the device: layoutlab agent --tracker ADDRESS --key pixels\n"
    )


def test_the_target_has_to_be_the_devices(tmp_path, fleet):
    prepare(tmp_path, KRYO)
    code, _, err = finish(begin(tmp_path, fleet.device))
    assert code == 3
    assert re.sub(r"dev\d", "DEVICE", err) == (
        "error: the device DEVICE at rpc://ADDRESS/pixel does not suit this spec: the target "
        f"({KRYO}) makes aarch64 code, and the device is x86_64: give the spec the device's target, or run it on "
        "another device\n"
    )


def test_the_cores_have_to_be_the_devices(tmp_path, fleet):
    spec = prepare(tmp_path) / "x.yaml"
    spec.write_text(spec.read_text().replace("rounds: 3", "cores: [4095], rounds: 3"))
    code, _, err = finish(begin(tmp_path, fleet.device))
    assert code == 3
    assert err.startswith("error: the device at ADDRESS: measure.cores: core 4095 cannot be used here: there are core")
    assert events(tmp_path, "built") == []


def test_a_restarted_tracker_and_a_device_that_goes_away_cost_no_run(tmp_path, fleet):
    prepare(tmp_path)
    run = begin(tmp_path, fleet.device)
    wait_until(lambda: bool(events(tmp_path, "built")), "the first variant is built")
    fleet.restart_tracker()
    wait_until(lambda: bool(events(tmp_path, "samples")), "the first round begins")
    gone = events(tmp_path, "samples")[0]["device"]
    fleet.agents[gone].send_signal(signal.SIGKILL)
    code, table, err = finish(run)
    assert code == 0, err
    assert re.search("^measuring: the device at .* went away: .*; its rounds begin anew on another device$", err, re.M)
    other = {"dev1": "dev2", "dev2": "dev1"}[gone]
    finished = events(tmp_path, "finished")[-1]
    assert finished["device"] == other
    counted = [event for event in events(tmp_path, "samples") if event["protocol"] == finished["protocol"]]
    assert [event["device"] for event in counted] == [other] * 9
    assert "nhwc" in table


def test_what_was_made_for_the_simulated_core_runs_on_a_board(tmp_path, toolchain: Toolchain):
    prepare(tmp_path, KRYO)
    (tmp_path / "guest").mkdir()
    with emulated_agent(toolchain, tmp_path / "guest", "--name", "board") as (_, port):
        code, table, err = finish(begin(tmp_path, f"agent://127.0.0.1:{port}"))
    assert code == 0, err
    assert "aarch64), over RPC, the device board at agent://ADDRESS" in table
    assert [line.split()[0] for line in table.splitlines()[4:7]] == ["nhwc", "nchw4c", "tflite"]
    assert "simulated" not in table
