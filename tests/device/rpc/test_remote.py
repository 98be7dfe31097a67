"""Leasing devices over RPC, and what is done on them: real trackers, agents and plain TVM RPC servers."""

from __future__ import annotations

import re
import socket
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from layoutlab.device.candidate_timing import Timing
from layoutlab.device.on_device import compute_outputs
from layoutlab.device.rpc.address import RpcAddress
from layoutlab.errors import DeviceError, DeviceLost, StageError
from layoutlab.measure.inputs import load_sets, make_inputs, save_sets

from ...conftest import TINY
from ..agents import library, listening, plain_server, running, wait_until

TFLITE = {"kind": "tflite", "path": str(TINY / "tiny_mobilenet.tflite"), "threads": 1}
SAMPLES = {"repeats": 2, "min_repeat_ms": 1, "warmup_ms": 1}
TIMING = Timing(repeats=2, min_repeat_ms=0, cold_cache=False)


def lease(address: RpcAddress, **options):
    # Imports TVM: not while tests are collected.
    from layoutlab.device.rpc.remote import open_remote

    return closing(open_remote(address, **options))


def refusal(address: RpcAddress, **options) -> str:
    with pytest.raises(DeviceError) as caught, lease(address, **options):
        pass
    return re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", str(caught.value))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("inputs") / "inputs.npz"
    save_sets(path, make_inputs([{"shape": (1, 32, 32, 3), "dtype": "float32"}], (-1, 1), 2, 1))
    return path


@pytest.fixture(scope="module")
def artifact(tmp_path_factory) -> dict:
    """The tiny network, untuned, linked as for any device."""
    from layoutlab.engine.relax.build import build_library
    from layoutlab.engine.relax.importer import import_model
    from layoutlab.engine.relax.layout.canonicalise import canonicalise
    from layoutlab.engine.relax.lower import lower
    from layoutlab.engine.relax.tvm_cpu import tvm

    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "num-cores": 1})
    path = tmp_path_factory.mktemp("artifact") / "model.so"
    mod = canonicalise(import_model(Path(TFLITE["path"]).read_bytes()))
    build_library(lower(mod, target, pack_weights=False), target, str(path), "rpc")
    return {"kind": "artifact", "path": str(path), "threads": 1}


def same_outputs(one: Path, other: Path) -> bool:
    pairs = zip(load_sets(one), load_sets(other), strict=True)
    return all(np.allclose(x[0], y[0], rtol=1e-3, atol=1e-5) for x, y in pairs)


# --- leasing ----------------------------------------------------------------------------------------------


def test_the_device_that_is_preferred_is_leased_and_the_others_stay_free(pixels):
    for wanted in ("dev1", "dev2", "dev1"):
        with lease(pixels, prefer=wanted) as remote, lease(pixels, prefer=wanted) as other:
            assert (remote.description["id"], other.description["id"]) == (
                wanted,
                {"dev1": "dev2", "dev2": "dev1"}[wanted],
            )


def test_what_is_busy_is_waited_for_and_not_for_ever(pixels):
    with lease(pixels), lease(pixels):
        assert refusal(pixels, wait_s=1.0) == (
            '2 devices with the key "pixel" at the tracker ADDRESS, and none became free within 1 s. Wait for whoever '
            "uses it, or attach another"
        )
    # The request that was given up takes no device.
    with lease(pixels), lease(pixels):
        pass


def test_an_unknown_key_is_answered_with_those_that_are_known(pixels):
    # How many are free again after the test before is a matter of a moment.
    assert re.sub(r"\d free", "N free", refusal(replace(pixels, key="pixle"))) == (
        'the tracker at ADDRESS knows no device with the key "pixle": did you mean "pixel"? Known there: pixel '
        "(2 devices, N free). Give another key, or run on the device: layoutlab agent --tracker ADDRESS --key pixle"
    )


def test_another_kind_of_device_is_refused(pixels):
    found = re.sub(r"dev\d", "DEVICE", refusal(pixels.of_cpu("Kryo 280")))
    assert re.sub(r"is a .+, and", "is a CPU, and", found) == (
        "the device DEVICE of rpc://ADDRESS/pixel is a CPU, and this run is on a Kryo 280: give devices of different "
        "kinds different keys"
    )


def nobody() -> str:
    with listening() as address:
        return address


def test_nobody_there():
    assert refusal(RpcAddress(tracker=nobody(), key="k")) == (
        "no RPC tracker answers at ADDRESS: Connection refused. Start one: layoutlab tracker, or give another address"
    )
    assert refusal(RpcAddress(agents=(nobody(),))).startswith("no RPC server answers at ADDRESS: ")


def test_somebody_else_there(pixels, monkeypatch):
    from layoutlab.device.rpc import tracker

    monkeypatch.setattr(tracker, "_CONNECT_S", 1.0)
    with listening() as address:
        assert refusal(RpcAddress(tracker=address, key="k")).startswith("what listens at ADDRESS is no RPC tracker.")
        assert refusal(RpcAddress(agents=(address,)), wait_s=1.0) == (
            "what listens at ADDRESS takes no session within 1 s: it serves one at a time, and is busy"
        )
    with running() as port:
        assert refusal(RpcAddress(tracker=f"127.0.0.1:{port}", key="k")) == (
            "what listens at ADDRESS is no RPC tracker. If it is an agent, say agent://ADDRESS instead"
        )


# --- what is done there -----------------------------------------------------------------------------------


def test_an_agent_computes_what_this_machine_does(pixels, inputs, artifact, tmp_path):
    compute_outputs(TFLITE, str(inputs), str(tmp_path / "here.npz"))
    with lease(pixels) as remote:
        for runner in (TFLITE, artifact):
            done = remote.compute_outputs(runner, inputs, tmp_path / "there.npz", 60)
            assert done["runtime"].split()[0] == {"tflite": "LiteRT", "artifact": "TVM"}[runner["kind"]]
            assert same_outputs(tmp_path / "there.npz", tmp_path / "here.npz")
            assert len(remote.take_samples(runner, inputs, SAMPLES, 60)["samples_ms"]) == 2


def test_a_plain_server_runs_variants_and_no_tflite(plain, inputs, artifact, tmp_path):
    compute_outputs(TFLITE, str(inputs), str(tmp_path / "here.npz"))
    with lease(plain) as remote:
        assert sorted(remote.description) == ["id", "versions"]
        done = remote.compute_outputs(artifact, inputs, tmp_path / "there.npz", 60)
        assert done == {"runtime": "TVM, 1 thread, plain RPC server"}
        assert same_outputs(tmp_path / "there.npz", tmp_path / "here.npz")
        taken = remote.take_samples(artifact, inputs, SAMPLES, 60)
        assert len(taken["samples_ms"]) == 2 and taken["conditions"] == []
        with pytest.raises(StageError, match="is a plain TVM RPC server, which has no TFLite"):
            remote.take_samples(TFLITE, inputs, SAMPLES, 60)


def test_kernels_are_timed_there(pixels, plain, tmp_path):
    from layoutlab.engine.relax.peaks import build_kernels
    from layoutlab.engine.relax.tvm_cpu import tvm

    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "num-cores": 1})
    calls = [(each.library, each.arguments) for each in build_kernels(target, 1, "rpc", tmp_path)[:3]]
    for address in (pixels, plain):
        with lease(address) as remote:
            options = {"repeats": 2, "min_repeat_ms": 0, "cores": "big", "threads": 1}
            taken = remote.time_kernels(calls, options, 20)
        assert [len(samples) for samples in taken] == [2, 2, 2]
        assert all(seconds > 0 for samples in taken for seconds in samples)


def test_what_hangs_on_a_plain_server_costs_itself(plain, inputs, artifact, tmp_path):
    with lease(plain) as remote:
        with pytest.raises(StageError) as caught:
            remote.measure_candidate(library(tmp_path, "for (;;) {}"), [], TIMING, {"threads": 1, "cores": "big"})
        assert str(caught.value) == "run: took longer than 5 s"
        assert len(remote.take_samples(artifact, inputs, SAMPLES, 60)["samples_ms"]) == 2


def test_what_crashes_on_a_plain_server_is_said_and_so_is_that_the_server_is_gone(tmp_path):
    # TVM's server in Python ends with what crashes in a session; `tvm_rpc` and the app for phones go on.
    with plain_server() as port:
        address = RpcAddress(agents=(f"127.0.0.1:{port}",), timeout_s=5)
        wait_until(lambda: is_open(port), "the plain server listens")
        with lease(address) as remote:
            crashing = library(tmp_path, "abort();")
            with pytest.raises(StageError) as caught:
                remote.measure_candidate(crashing, [], TIMING, {"threads": 1, "cores": "big"})
            assert str(caught.value) == "run: crashed its process on the device, or the device went away"
            with pytest.raises(DeviceLost, match=f"^the device at 127.0.0.1:{port} went away: "):
                remote.measure_candidate(crashing, [], TIMING, {"threads": 1, "cores": "big"})


def is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
