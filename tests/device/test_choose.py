"""What a spec runs on, and the sentence that says so."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from layoutlab.device import choose as choose_module
from layoutlab.device.choose import choose
from layoutlab.device.kryo.toolchain import Toolchain
from layoutlab.errors import DeviceError
from layoutlab.spec.models import Spec

KRYO = "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu -mcpu=kryo -mattr=+neon -num-cores=1"
HOST = {"kind": "llvm", "mcpu": "some-cpu"}


CORE = Toolchain(
    folder=Path("kryo-1"),
    qemu=(),
    python=Path(),
    site=Path(),
    llvm_mc=(),
    llvm_mca=(),
    zig=Path(),
    counter=Path(),
    marks=Path(),
    versions={"qemu-user": "1:7.2+dfsg-7", "llvm": "1:14.0.6-12"},
)


def no_core() -> Toolchain:
    raise DeviceError("the simulated Kryo core cannot be provisioned:\n  no apt-get")


def spec(**fields) -> Spec:
    base = {"name": "x", "model": {"file": "x.tflite"}, "variants": ({"name": "a"},)}
    return Spec.model_validate(base | fields)


def chosen(spec, host_target, core):
    return choose(spec, host_target, core, lambda address: pytest.fail("not over RPC"))


@pytest.fixture(autouse=True)
def x86(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(choose_module, "cpu_name", lambda: "Some CPU")


def test_the_host_target_gets_the_number_of_threads():
    choice = chosen(spec(baseline={"threads": 2}), lambda: HOST, no_core)
    assert choice.target == {"kind": "llvm", "mcpu": "some-cpu", "num-cores": 2}
    assert choice.reason == "runs on this machine, Some CPU (x86_64), with its own target"


def test_a_kryo_target_runs_on_the_simulated_core():
    choice = chosen(spec(target=KRYO), lambda: pytest.fail("not needed"), lambda: CORE)
    assert choice.device.simulated
    assert (choice.target["mcpu"], choice.target["num-cores"]) == ("kryo", 1)
    assert choice.reason == (
        "no phone or board is named, so it runs on the simulated Kryo 280 gold core at 2.45 GHz (qemu-user 7.2, "
        "LLVM 14.0.6, Python ?, TVM ?, LiteRT ?, zig ?): its figures are simulated"
    )


def test_the_simulated_core_can_be_asked_for():
    choice = chosen(spec(target=KRYO, device="kryo"), lambda: pytest.fail("not needed"), lambda: CORE)
    assert choice.device.simulated
    assert choice.reason.startswith("the spec says device: kryo, so it runs on the simulated Kryo 280 gold core")


def test_auto_goes_on_without_the_core_and_says_plainly_that_the_figures_are_not_about_the_target():
    choice = chosen(spec(target=KRYO), lambda: HOST, no_core)
    assert not choice.device.simulated
    assert choice.target["mcpu"] == "some-cpu"
    assert choice.reason == (
        "no phone or board is named, and the simulated Kryo core cannot be provisioned: no apt-get, so it runs on "
        f"this machine, Some CPU (x86_64), with this machine's own target; the spec's target ({KRYO}) makes aarch64 "
        "code, which does not run here, and these figures say nothing about it"
    )


def test_who_asks_for_the_core_gets_it_or_an_error():
    with pytest.raises(DeviceError) as caught:
        chosen(spec(target=KRYO, device="kryo"), lambda: HOST, no_core)
    assert str(caught.value) == "the simulated Kryo core cannot be provisioned:\n  no apt-get"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {"target": "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76"},
            "the simulated core is a Kryo, the target is llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76",
        ),
        (
            {"target": KRYO.replace("num-cores=1", "num-cores=2")},
            "the simulated core has one thread, the spec asks for 2",
        ),
        (
            {"target": "host"},
            "the target is this machine's own; the simulated core needs a target with -mcpu=kryo",
        ),
    ],
)
def test_the_core_does_not_stand_in_for_what_it_is_not(fields, why):
    with pytest.raises(DeviceError) as caught:
        chosen(spec(device="kryo", **fields), lambda: HOST, lambda: CORE)
    assert str(caught.value) == f"device: kryo does not suit this spec: {why}"
    choice = chosen(spec(**fields), lambda: HOST, lambda: CORE)
    assert not choice.device.simulated
    assert why in choice.reason or fields["target"] == "host"


def test_device_host_says_that_the_spec_asked_for_it():
    choice = chosen(spec(target=KRYO, device="host"), lambda: HOST, no_core)
    assert choice.reason.startswith("the spec says device: host, so it runs on this machine")


def test_a_target_of_this_architecture_is_used_as_it_is():
    choice = chosen(spec(target="llvm -mcpu=haswell"), lambda: pytest.fail("not needed"), no_core)
    assert choice.target["mcpu"] == "haswell"
    assert choice.target["num-cores"] == 1


def test_on_an_arm_machine_the_arm_target_is_used(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    choice = chosen(spec(target=KRYO), lambda: pytest.fail("not needed"), no_core)
    assert choice.target["mcpu"] == "kryo"


def test_without_a_compiler_nothing_can_be_linked(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DeviceError) as caught:
        chosen(spec(), lambda: HOST, no_core)
    assert str(caught.value) == (
        "no C compiler found: TVM needs one to link what it compiles. "
        "Install gcc or clang (on Debian: apt-get install g++) and run again"
    )
