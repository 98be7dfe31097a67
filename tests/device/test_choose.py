"""What a spec runs on, and the sentence that says so."""

from __future__ import annotations

import platform

import pytest

from layoutlab.device import choose as choose_module
from layoutlab.device.choose import choose
from layoutlab.errors import DeviceError
from layoutlab.spec.models import Spec

KRYO = "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu -mcpu=kryo -mattr=+neon -num-cores=1"
HOST = {"kind": "llvm", "mcpu": "some-cpu"}


def spec(**fields) -> Spec:
    base = {"name": "x", "model": {"file": "x.tflite"}, "variants": ({"name": "a"},)}
    return Spec.model_validate(base | fields)


@pytest.fixture(autouse=True)
def x86(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(choose_module, "cpu_name", lambda: "Some CPU")


def test_the_host_target_gets_the_number_of_threads():
    choice = choose(spec(baseline={"threads": 2}), lambda: HOST)
    assert choice.target == {"kind": "llvm", "mcpu": "some-cpu", "num-cores": 2}
    assert choice.reason == "runs on this machine, Some CPU (x86_64), with its own target"


def test_an_arm_target_on_x86_says_plainly_that_the_figures_are_not_about_it():
    choice = choose(spec(target=KRYO), lambda: HOST)
    assert choice.target["mcpu"] == "some-cpu"
    assert choice.reason == (
        "no phone, board or simulated core is available, so it runs on this machine, Some CPU (x86_64), with this "
        f"machine's own target; the spec's target ({KRYO}) makes aarch64 code, which does not run here, and these "
        "figures say nothing about it"
    )


def test_device_host_says_that_the_spec_asked_for_it():
    choice = choose(spec(target=KRYO, device="host"), lambda: HOST)
    assert choice.reason.startswith("the spec says device: host, so it runs on this machine")


def test_a_target_of_this_architecture_is_used_as_it_is():
    choice = choose(spec(target="llvm -mcpu=haswell"), lambda: pytest.fail("not needed"))
    assert choice.target["mcpu"] == "haswell"
    assert choice.target["num-cores"] == 1


def test_on_an_arm_machine_the_arm_target_is_used(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    choice = choose(spec(target=KRYO), lambda: pytest.fail("not needed"))
    assert choice.target["mcpu"] == "kryo"


def test_without_a_compiler_nothing_can_be_linked(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DeviceError) as caught:
        choose(spec(), lambda: HOST)
    assert str(caught.value) == (
        "no C compiler found: TVM needs one to link what it compiles. "
        "Install gcc or clang (on Debian: apt-get install g++) and run again"
    )
