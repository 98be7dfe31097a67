"""`layoutlab doctor SPEC` and `layoutlab devices`: whole texts, with real trackers, agents and a plain server."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from layoutlab.cli import main
from layoutlab.device.cpu import cpu_name
from layoutlab.device.rpc.address import RpcAddress

from ...conftest import TINY
from ..agents import base_site, listening, running, wait_until

# What this machine can do and nothing more, and what no CPU can since AMD gave it up.
X86 = "llvm -mtriple=x86_64-linux-gnu"
FMA4 = "llvm -mtriple=x86_64-linux-gnu -mattr=+fma4"
AARCH64 = "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu -mattr=+neon"
NOBODY = "127.0.0.1:1"

Layoutlab = Callable[..., tuple[int, str]]


@pytest.fixture
def layoutlab(capsys) -> Layoutlab:
    """Exit code and text of a command; ports, names and times of this machine masked, blanks squeezed."""

    def run(*arguments: object) -> tuple[int, str]:
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        text = (said.out + said.err).replace(cpu_name(), "CPU")
        text = re.sub(r"127\.0\.0\.1:\d{4,}", "ADDRESS", text)
        text = re.sub(r"\d+ MB/s", "N MB/s", text)
        text = re.sub(r"dev\d", "DEVICE", text)
        return code, "\n".join(" ".join(line.split()) for line in text.splitlines() if not re.fullmatch("-[- ]+", line))

    return run


@pytest.fixture
def spec(tmp_path) -> Callable[..., Path]:
    """A spec of a target, as a file."""

    def write(target: str, baseline: str = "{runtime: tflite}", cores: str = "big") -> Path:
        path = tmp_path / "here.yaml"
        path.write_text(
            f"name: here\nmodel: {{file: {TINY / 'tiny_conv.tflite'}}}\ntarget: {target}\nbaseline: {baseline}\n"
            f"variants: [{{name: nhwc, alter_op_layout: keep}}]\nmeasure: {{cores: {cores}}}\n"
        )
        return path

    return write


def all_free(address: RpcAddress) -> None:
    """What was leased a moment ago is free again after some time."""
    from layoutlab.device.rpc.tracker import state_of

    wait_until(
        lambda: state_of(address.tracker, address.key).free == len(state_of(address.tracker, address.key).devices),
        "all devices are free",
    )


def leased(address: RpcAddress) -> closing:
    # Imports TVM: not while tests are collected.
    from layoutlab.device.rpc.remote import open_remote

    return closing(open_remote(address))


def without_clock(text: str) -> str:
    """How steady the clock is depends on what else runs here; that it was looked at does not."""
    found = re.search(r"^clock (ok|warning) spread \d+ % over 10 samples.*\n", text, re.MULTILINE)
    assert found, text
    return re.sub(r"^(to do:\n)?clock: .*figures will be unsteady: .*\n\n?", "", text.replace(found[0], ""), flags=re.M)


# --- doctor -----------------------------------------------------------------------------------------------


def test_everything_is_well(pixels, layoutlab, spec):
    all_free(pixels)
    code, text = layoutlab("doctor", spec(X86), "--device", pixels)
    assert (code, without_clock(text)) == (
        0,
        """\
part state details
tracker ok ADDRESS, 1 key with devices
key ok pixel (2 devices, 2 free)
device ok DEVICE, CPU
versions ok layoutlab 0.1.0, TVM 0.27.0.post1, as here
architecture ok x86_64, as the target's
CPU features ok all 2 that the target uses
transfer ok 1 MiB there and back, N MB/s
kernel ok built here, right there; 1 thread
baseline ok LiteRT 2.3.0

here can run on DEVICE at rpc://ADDRESS/pixel""",
    )


NOT_TRIED = """\
device not tried needs: key
versions not tried needs: device
architecture not tried needs: device
CPU features not tried needs: device, architecture
transfer not tried needs: device
kernel not tried needs: versions, architecture, CPU features, transfer
baseline not tried needs: device
clock not tried needs: kernel
"""


def test_nobody_there(layoutlab, spec):
    assert layoutlab("doctor", spec(X86), "--device", f"rpc://{NOBODY}/pixel") == (
        3,
        f"""\
part state details
tracker failed {NOBODY}
key not tried needs: tracker
{NOT_TRIED}
to do:
tracker: no RPC tracker answers at {NOBODY}: Connection refused. Start one: layoutlab tracker, or give another address

here cannot run on rpc://{NOBODY}/pixel: see tracker""",
    )
    code, text = layoutlab("doctor", spec(X86), "--device", f"agent://{NOBODY}")
    assert (code, text.splitlines()[-3:]) == (
        3,
        [
            f"agent: nobody listens at {NOBODY}: Connection refused. Start an agent on the device: layoutlab agent, "
            "and forward its port to this machine (docs/phones.md)",
            "",
            f"here cannot run on agent://{NOBODY}: see agent",
        ],
    )


def test_an_agent_is_no_tracker_and_a_tracker_no_agent(pixels, layoutlab, spec):
    from layoutlab.device.rpc.tracker import state_of

    agent, _ = state_of(pixels.tracker, pixels.key).devices
    code, text = layoutlab("doctor", spec(X86), "--device", f"rpc://{agent}/pixel")
    assert (code, text.splitlines()[-3]) == (
        3,
        "tracker: what listens at ADDRESS is no RPC tracker. If it is an agent, say agent://ADDRESS instead",
    )
    code, text = layoutlab("doctor", spec(X86), "--device", f"agent://{pixels.tracker}")
    assert (code, text.splitlines()[1:3], text.splitlines()[-3:]) == (
        3,
        ["agent ok ADDRESS", "device failed none could be had"],
        [
            "device: what listens at ADDRESS is a tracker: say rpc://ADDRESS/KEY instead",
            "",
            "here cannot run on agent://ADDRESS: see device",
        ],
    )


def test_an_unknown_key(pixels, layoutlab, spec):
    all_free(pixels)
    assert layoutlab("doctor", spec(X86), "--device", replace(pixels, key="pixle")) == (
        3,
        f"""\
part state details
tracker ok ADDRESS, 1 key with devices
key failed pixle
{NOT_TRIED}
to do:
key: the tracker at ADDRESS knows no device with the key "pixle": did you mean "pixel"? Known there: pixel (2 devices, \
2 free). Give another key, or run on the device: layoutlab agent --tracker ADDRESS --key pixle

here cannot run on rpc://ADDRESS/pixle: see key""",
    )


def test_all_are_busy(pixels, layoutlab, spec):
    with leased(pixels), leased(pixels):
        code, text = layoutlab("doctor", spec(X86), "--device", pixels)
    assert (code, text.splitlines()[2:4], text.splitlines()[-3:]) == (
        3,
        ["key ok pixel (2 devices, 0 free)", "device failed none could be had"],
        [
            'device: 2 devices with the key "pixel" at the tracker ADDRESS, and none became free within 3 s. Wait for '
            "whoever uses it, or attach another",
            "",
            "here cannot run on rpc://ADDRESS/pixel: see device",
        ],
    )


def test_code_for_another_architecture(pixels, layoutlab, spec):
    code, text = layoutlab("doctor", spec(AARCH64), "--device", pixels)
    assert (code, text.splitlines()[5:]) == (
        3,
        f"""\
architecture failed x86_64
CPU features not tried needs: architecture
transfer ok 1 MiB there and back, N MB/s
kernel not tried needs: architecture, CPU features
baseline ok LiteRT 2.3.0
clock not tried needs: kernel

to do:
architecture: the target ({AARCH64}) makes aarch64 code, and the device is x86_64: give the spec the device's target, \
or run it on another device

here cannot run on rpc://ADDRESS/pixel: see architecture""".splitlines(),
    )


def test_cores_that_the_device_does_not_have(pixels, layoutlab, spec):
    code, text = layoutlab("doctor", spec(X86, cores="[4095]"), "--device", pixels)
    assert (code, [line for line in text.splitlines() if line.startswith(("kernel ", "clock "))]) == (
        3,
        ["kernel failed no such cores", "clock not tried needs: kernel"],
    )
    said = "kernel: the device at ADDRESS: measure.cores: core 4095 cannot be used here: there are core"
    assert text.splitlines()[-3].startswith(said)


def test_a_cpu_that_lacks_a_feature_and_a_device_without_litert(layoutlab, spec, tmp_path):
    # No CPU has fma4 any more; the sse4a that belongs to it AMD's have.
    has_sse4a = "sse4a" in Path("/proc/cpuinfo").read_text().split()
    missing = ["fma4"] if has_sse4a else ["fma4", "sse4a"]
    environment = base_site(tmp_path / "site", ["numpy", "tvm", "apache_tvm", "ml_dtypes", "typing_extensions"])
    agent = [sys.executable, "-S", "-m", "layoutlab.agent", "--name", "little"]
    with running(command=agent, env=environment) as port:
        code, text = layoutlab("doctor", spec(FMA4), "--device", f"agent://127.0.0.1:{port}")
        # Where the project itself was installed from decides whether this Python knows layoutlab's version.
        assert (code, text.replace("layoutlab 0.1.0, ", "")) == (
            3,
            f"""\
part state details
agent ok ADDRESS
device ok little, CPU
versions ok TVM 0.27.0.post1, as here
architecture ok x86_64, as the target's
CPU features failed missing: {", ".join(missing)}
transfer ok 1 MiB there and back, N MB/s
kernel not tried needs: CPU features
baseline failed no LiteRT on the device
clock not tried needs: kernel

to do:
CPU features: the target ({FMA4}) uses what this CPU does not have, and its code would end with an illegal \
instruction. Name the device's own CPU with -mcpu, or switch them off: -mattr={",".join(f"-{name}" for name in missing)}
baseline: run layoutlab agent there, with pip install ai-edge-litert; or take the baseline from benchmark_model \
(docs/phones.md)

here cannot run on agent://ADDRESS: see CPU features, baseline""",
        )


def test_a_plain_server_runs_what_is_compiled_and_says_nothing_of_itself(plain, layoutlab, spec):
    with_tool = spec(X86, "{runtime: benchmark_model, results: [round1.txt]}")
    code, text = layoutlab("doctor", with_tool, "--device", plain)
    assert (code, without_clock(text).splitlines()[3:]) == (
        0,
        f"""\
device ok ADDRESS, a plain TVM RPC server: it says nothing of itself
versions unknown a plain TVM RPC server does not say; it has to have this machine's TVM
architecture unknown a plain TVM RPC server does not say; the target is {X86}
CPU features unknown the device does not say what its CPU can do
transfer ok 1 MiB there and back, N MB/s
kernel ok built here, right there; 1 thread
baseline ok benchmark_model, as the spec says; not tried here

here can run on ADDRESS at rpc://ADDRESS/plain""".splitlines(),
    )


# --- devices ----------------------------------------------------------------------------------------------


def test_what_is_free_says_what_it_is_and_what_is_busy_stays_alone(pixels, plain, layoutlab, monkeypatch):
    all_free(pixels)
    all_free(plain)
    host, _, port = pixels.tracker.partition(":")
    # As TVM's own programs are told.
    monkeypatch.setenv("TVM_TRACKER_HOST", host)
    monkeypatch.setenv("TVM_TRACKER_PORT", port)
    with leased(pixels), running("--name", "alone") as agent, listening() as silent:
        asked = [f"127.0.0.1:{agent}", silent, NOBODY]
        code, text = layoutlab("devices", *(word for address in asked for word in ("--agent", address)))
    text = re.sub(r", load [\d.]+|, \d+ °C", "", text)
    text = re.sub(r"\d+ cores?", "N cores", text)
    rows = [line for line in text.splitlines() if not line.startswith("kryo ")]
    what = "CPU (x86_64), N cores, TVM 0.27.0.post1, LiteRT 2.3.0"
    assert (code, rows) == (
        3,
        f"""\
--device id state what it is
host this machine ready {what}
rpc://ADDRESS/pixel DEVICE free {what}
rpc://ADDRESS/pixel - busy at ADDRESS
rpc://ADDRESS/plain ADDRESS free plain TVM RPC server: it says nothing of itself
agent://ADDRESS alone free {what}
agent://ADDRESS - busy in use
agent://{NOBODY} - unreachable no RPC server answers at {NOBODY}: Check failed: (sock.Connect(addr)) is false: \
Connect to {NOBODY} failed. Start one on the device: layoutlab agent

rpc://ADDRESS/pixel: 2 devices, 1 free, 0 clients waiting
rpc://ADDRESS/plain: 1 device, 1 free, 0 clients waiting""".splitlines(),
    )


def test_a_tracker_that_does_not_answer(layoutlab, tmp_path, capsys):
    path = tmp_path / "there.yaml"
    path.write_text(
        f"name: there\nmodel: {{file: x.tflite}}\ndevice: {{rpc: '{NOBODY}', key: pixel}}\nvariants: [{{name: nhwc}}]\n"
    )
    assert main(["devices", str(path), "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert [listed["device"] for listed in found["devices"]] == ["host", "kryo", f"rpc://{NOBODY}/KEY"]
    assert found["devices"][2] == {
        "device": f"rpc://{NOBODY}/KEY",
        "state": "unreachable",
        "description": {},
        "detail": f"no RPC tracker answers at {NOBODY}: Connection refused. Start one: layoutlab tracker, or give "
        "another address",
    }
    assert found["keys"] == []


def test_no_tracker_and_wrong_addresses(layoutlab, monkeypatch):
    monkeypatch.delenv("TVM_TRACKER_HOST", raising=False)
    code, text = layoutlab("devices")
    assert (code, text.splitlines()[-1]) == (
        0,
        "no tracker is known: name one with --tracker HOST:PORT, a SPEC, or TVM_TRACKER_HOST and TVM_TRACKER_PORT",
    )
    assert layoutlab("devices", "--tracker", "x") == (2, 'error: --tracker: expected HOST:PORT, found "x"')
    assert layoutlab("devices", "--agent", "1:2:3") == (
        2,
        'error: --agent: expected HOST:PORT or HOST:PORT/KEY, found "1:2:3"',
    )
    monkeypatch.setenv("TVM_TRACKER_HOST", "a b")
    assert layoutlab("devices") == (
        2,
        'error: TVM_TRACKER_HOST and TVM_TRACKER_PORT: expected HOST:PORT, found "a b:9190"',
    )
