"""The agent as a process: what it answers over TVM RPC, and what it survives."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from layoutlab.device.on_device import compute_outputs
from layoutlab.errors import DeviceError, StageError
from layoutlab.measure.inputs import load_sets, make_inputs, save_sets

from ..conftest import TINY

AGENT = [sys.executable, "-m", "layoutlab", "agent"]


@contextmanager
def running(*options: str) -> Iterator[int]:
    """An agent of this machine; gives its port."""
    process = subprocess.Popen(
        [*AGENT, "--port", "0", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("layoutlab agent listens on 127.0.0.1:")
        yield int(line.rpartition(":")[2])
        assert process.poll() is None, "the agent did not survive"
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running() as found:
        yield found


def session(port: int, timeout_s: float = 60.0, key: str = ""):
    # Imports TVM: not while tests are collected.
    from layoutlab.device.agent_session import AgentSession

    return AgentSession("127.0.0.1", port, key, timeout_s)


def library(folder: Path, body: str) -> Path:
    """A shared library that does `body` when it is loaded."""
    source = folder / "library.c"
    source.write_text(f"#include <stdlib.h>\n__attribute__((constructor)) static void start(void) {{ {body} }}\n")
    path = folder / "library.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    return path


def test_it_describes_the_device_and_its_conditions(port):
    found = session(port).do("describe")
    assert sorted(found) == ["conditions", "cpu", "machine", "python", "versions"]
    assert sorted(found["conditions"]) == ["frequency_khz", "governor", "load_1min"]
    assert found["versions"]["apache-tvm"] == "0.27.0.post1"


def test_it_runs_tflite_as_this_machine_does(port, tmp_path):
    model, inputs = TINY / "tiny_mobilenet.tflite", tmp_path / "inputs.npz"
    save_sets(inputs, make_inputs([{"shape": (1, 32, 32, 3), "dtype": "float32"}], (-1, 1), 2, 1))
    agent = session(port)
    agent.upload(model, "model.tflite")
    agent.upload(inputs, "inputs.npz")
    runner = {"kind": "tflite", "path": "model.tflite", "threads": 1}
    done = agent.do("compute_outputs", runner=runner, inputs="inputs.npz", outputs="outputs.npz")
    assert done["runtime"].startswith("LiteRT ")
    (tmp_path / "far.npz").write_bytes(agent.download("outputs.npz"))
    compute_outputs({**runner, "path": str(model)}, str(inputs), str(tmp_path / "near.npz"))
    for far, near in zip(load_sets(tmp_path / "far.npz"), load_sets(tmp_path / "near.npz"), strict=True):
        np.testing.assert_array_equal(far[0], near[0])
    taken = agent.do("take_samples", runner=runner, inputs="inputs.npz", repeats=2, min_repeat_ms=1, warmup_ms=1)
    assert len(taken["samples_ms"]) == 2 and len(taken["conditions"]) == 2


def test_what_a_verb_raises_comes_back_in_one_line(port):
    refused = session(port)
    with pytest.raises(StageError) as caught:
        refused.do(
            "compute_outputs", runner={"kind": "tflite", "path": "no.tflite", "threads": 1}, inputs="", outputs=""
        )
    # The traceback would hold the session, and the next test wait for its end.
    refused.close()
    assert str(caught.value) == "run: ValueError: Could not open 'no.tflite'.The model allocation is null/empty"


def test_a_crash_costs_its_session_only(port, tmp_path):
    path = library(tmp_path, "abort();")
    crashing = session(port)
    with pytest.raises(StageError) as caught:
        crashing.do("count_candidate", library=str(path), arguments=[], marks="")
    assert str(caught.value) == "run: crashed its process on the device"
    crashing.close()
    assert session(port).do("describe")["machine"]


def test_a_session_that_hangs_is_ended(port, tmp_path):
    path = library(tmp_path, "for (;;) {}")
    started = time.monotonic()
    with pytest.raises(StageError) as caught:
        session(port, timeout_s=2).do("count_candidate", library=str(path), arguments=[], marks="")
    assert str(caught.value) == "run: took longer than 2 s"
    assert time.monotonic() - started < 15
    assert session(port).do("describe")["machine"]


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4096, b"\x21\x2f\xf2\x0f\xff\xff\xff\x7f"])
def test_who_speaks_something_else_is_sent_away(port, said):
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        stranger.settimeout(20)
        with suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    assert session(port).do("describe")["machine"]


def test_the_key_has_to_be_named():
    with running("--key", "pixel") as port:
        with pytest.raises(DeviceError) as caught:
            session(port, key="other")
        assert str(caught.value).startswith(f"no layoutlab agent answers at 127.0.0.1:{port}: ")
        assert session(port, key="pixel").do("describe")["machine"]


def test_nobody_there():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DeviceError) as caught:
        session(port)
    assert str(caught.value).startswith(f"no layoutlab agent answers at 127.0.0.1:{port}: ")
    assert str(caught.value).endswith(" Start one there: layoutlab agent")


def test_an_address_that_is_taken(port):
    done = subprocess.run([*AGENT, "--port", str(port)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        f"error: cannot listen on 127.0.0.1:{port}: Address already in use. "
        "Choose another address with --host and --port; port 0 takes any free one\n"
    )
