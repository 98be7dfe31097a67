"""The agent as a process: what it answers over TVM RPC, and what it survives."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from layoutlab.device.on_device import compute_outputs
from layoutlab.errors import DeviceError, StageError
from layoutlab.measure.inputs import load_sets, make_inputs, save_sets

from ..conftest import TINY
from .agents import base_site, library, run, running


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running() as found:
        yield found


@contextmanager
def session(port: int, timeout_s: float = 60.0, key: str = ""):
    # Imports TVM: not while tests are collected.
    from layoutlab.device.agent_session import AgentSession

    with closing(AgentSession("127.0.0.1", port, key, timeout_s)) as opened:
        yield opened


def measured(body: str, folder: Path, **changes) -> dict:
    """The arguments of measure_candidate for a library that does `body` and has nothing to measure."""
    timing = {"repeats": 2, "min_repeat_ms": 1, "cold_cache": False, "cores": [0], "threads": 1}
    return {"library": str(library(folder, body)), "arguments": [], **timing, **changes}


def test_it_describes_the_device_and_its_conditions(port):
    with session(port) as agent:
        found = agent.do("describe")
    assert sorted(found) == ["conditions", "cores", "cpu", "features", "id", "machine", "python", "versions"]
    assert {"frequency_khz", "governor", "load_1min"} <= found["conditions"].keys()
    assert found["versions"]["apache-tvm"] == "0.27.0.post1"
    assert found["id"] == f"{socket.gethostname()}:{port}"
    assert found["cores"] == len(os.sched_getaffinity(0))
    assert {"aarch64": "asimd", "x86_64": "sse2"}[platform.machine()] in found["features"]


def test_a_candidate_stays_on_its_cores(port, tmp_path):
    chosen = max(os.sched_getaffinity(0))
    seen = tmp_path / "seen"
    body = f"""
        cpu_set_t set;
        sched_getaffinity(0, sizeof set, &set);
        FILE *file = fopen("{seen}", "w");
        fprintf(file, "%d %d %s", CPU_COUNT(&set), CPU_ISSET({chosen}, &set) != 0, getenv("TVM_NUM_THREADS"));
        fclose(file);
    """
    with session(port) as agent, pytest.raises(StageError):
        agent.do("measure_candidate", **measured(body, tmp_path, cores=[chosen]))
    assert seen.read_text() == "1 1 1"


def test_it_runs_tflite_as_this_machine_does(port, tmp_path):
    model, inputs = TINY / "tiny_mobilenet.tflite", tmp_path / "inputs.npz"
    save_sets(inputs, make_inputs([{"shape": (1, 32, 32, 3), "dtype": "float32"}], (-1, 1), 2, 1))
    runner = {"kind": "tflite", "path": "model.tflite", "threads": 1}
    with session(port) as agent:
        agent.upload(model, "model.tflite")
        agent.upload(inputs, "inputs.npz")
        done = agent.do("compute_outputs", runner=runner, inputs="inputs.npz", outputs="outputs.npz")
        (tmp_path / "far.npz").write_bytes(agent.download("outputs.npz"))
        taken = agent.do("take_samples", runner=runner, inputs="inputs.npz", repeats=2, min_repeat_ms=1, warmup_ms=1)
    assert done["runtime"].startswith("LiteRT ")
    compute_outputs({**runner, "path": str(model)}, str(inputs), str(tmp_path / "near.npz"))
    for far, near in zip(load_sets(tmp_path / "far.npz"), load_sets(tmp_path / "near.npz"), strict=True):
        np.testing.assert_array_equal(far[0], near[0])
    assert len(taken["samples_ms"]) == 2 and len(taken["conditions"]) == 2


def test_what_a_verb_raises_comes_back_in_one_line(port):
    with session(port) as agent, pytest.raises(StageError) as caught:
        agent.do("compute_outputs", runner={"kind": "tflite", "path": "no.tflite", "threads": 1}, inputs="", outputs="")
    assert str(caught.value) == "run: ValueError: Could not open 'no.tflite'.The model allocation is null/empty"


def test_what_ends_a_verb_is_told(port, tmp_path):
    crashing = library(tmp_path, "abort();")
    with session(port) as agent, pytest.raises(StageError) as caught:
        agent.do("count_candidate", library=str(crashing), arguments=[], marks="")
    assert str(caught.value) == "run: crashed its process on the device (SIGABRT)"
    hanging = library(tmp_path, "for (;;) {}", "hanging")
    with session(port, timeout_s=1) as agent, pytest.raises(StageError) as caught:
        agent.do("count_candidate", library=str(hanging), arguments=[], marks="")
    assert str(caught.value) == "run: took longer than 1 s"


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4096, b"\x21\x2f\xf2\x0f\xff\xff\xff\x7f"])
def test_who_speaks_something_else_is_sent_away(port, said):
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        stranger.settimeout(20)
        with suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    with session(port) as agent:
        assert agent.do("describe")["machine"]


def test_the_key_has_to_be_named():
    with running("--key", "pixel") as port:
        with pytest.raises(DeviceError) as caught, session(port, key="other"):
            pass
        assert str(caught.value).startswith(f"no layoutlab agent answers at 127.0.0.1:{port}: ")
        with session(port, key="pixel") as agent:
            assert agent.do("describe")["machine"]


def test_nobody_there():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DeviceError) as caught, session(port):
        pass
    assert str(caught.value).startswith(f"no layoutlab agent answers at 127.0.0.1:{port}: ")
    assert str(caught.value).endswith(" Start one there: layoutlab agent")


@pytest.mark.parametrize("command", ["agent", "tracker"])
def test_an_address_that_is_taken(port, command):
    assert run(command, "--port", str(port)) == (
        3,
        "",
        f"error: cannot listen on 127.0.0.1:{port}: Address already in use. "
        "Choose another address with --host and --port; port 0 takes any free one\n",
    )


@pytest.mark.parametrize(
    "command, danger",
    [("agent", "any code here"), ("tracker", "any code on the devices that register here")],
)
@pytest.mark.parametrize("host", ["0.0.0.0", "", "::"])
def test_nobody_else_is_let_in_unasked(command, danger, host):
    assert run(command, "--host", host) == (
        2,
        "",
        f"error: {host or '0.0.0.0'} is open to other machines, and whoever can connect can run {danger}. "
        "Keep 127.0.0.1 and forward the port, with `ssh -L 9190:127.0.0.1:9190 DEVICE`, "
        "`adb forward tcp:9190 tcp:9190` or `adb reverse tcp:9190 tcp:9190`; "
        "or say --allow-lan where everyone on the network may do that\n",
    )


def test_letting_others_in_is_said(port):
    """The address is taken, so nothing is open meanwhile."""
    code, _, said = run("agent", "--allow-lan", "--host", "0.0.0.0", "--port", str(port))
    warning = "warning: 0.0.0.0 is open to other machines: whoever can connect can run any code here\n"
    assert (code, said.startswith(warning)) == (3, True)


@pytest.mark.parametrize(
    "options, message",
    [
        (
            ["--tracker", "127.0.0.1:1"],
            "--tracker needs --key KEY as well: the name under which clients ask for this kind of device",
        ),
        (
            ["--custom-address", "here"],
            "--custom-address is what a tracker tells its clients: it needs --tracker HOST:PORT as well",
        ),
        (["--key", "my phone"], "--key 'my phone' has a blank: a key is one word"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    assert run("agent", *options) == (2, "", f"error: {message}\n")


def test_a_device_with_little_installed_serves_what_it_can(tmp_path):
    environment = base_site(tmp_path / "site", ["numpy", "tvm", "apache_tvm", "ml_dtypes", "typing_extensions"])
    with (
        running(command=[sys.executable, "-S", "-m", "layoutlab.agent"], env=environment) as port,
        session(port) as agent,
        pytest.raises(StageError) as caught,
    ):
        versions = agent.do("describe")["versions"]
        agent.do("compute_outputs", runner={"kind": "tflite", "path": "", "threads": 1}, inputs="", outputs="")
    assert (versions["apache-tvm"], versions["ai-edge-litert"]) == ("0.27.0.post1", "not installed")
    assert str(caught.value) == (
        "run: TFLite cannot run here, for LiteRT is not installed (No module named 'ai_edge_litert'). "
        "Install it: pip install ai-edge-litert"
    )


def test_a_tracker_needs_tornado(tmp_path):
    environment = base_site(tmp_path / "site", ["numpy", "yaml", "pydantic", "annotated", "typing", "psutil", "pebble"])
    done = subprocess.run(
        [sys.executable, "-S", "-m", "layoutlab", "tracker"], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        3,
        "",
        "error: TVM's tracker needs the package tornado. Install it: pip install 'layoutlab[rpc]'\n",
    )
