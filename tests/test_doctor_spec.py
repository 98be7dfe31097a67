"""On what a spec would run that names no device over RPC, and what is said when a check of one breaks off."""

from __future__ import annotations

import json

import pytest

from layoutlab.cli import main
from layoutlab.device.cpu import cpu_name
from layoutlab.device.rpc.address import RpcAddress
from layoutlab.doctor_spec import Examined, close_chain, examined_json, runs_on
from layoutlab.errors import StageError
from layoutlab.findings import Finding
from layoutlab.spec.models import Spec

KRYO = "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu -mcpu=kryo -mattr=+neon -num-cores=1"
PARTS = ("Python", "TVM", "LiteRT", "C linker", "simulated Kryo core")


def spec(**fields) -> Spec:
    return Spec.model_validate({"name": "x", "model": {"file": "x.tflite"}, "variants": ({"name": "a"},)} | fields)


def parts(*missing: str, later: str = "") -> list[Finding]:
    states = {part: "missing" if part in missing else "later" if part == later else "ok" for part in PARTS}
    return [Finding(part=part, state=state, detail="") for part, state in states.items()]


def test_a_whole_machine(capsys):
    assert main(["doctor", "quick"]) == 0
    *_, blank, last = capsys.readouterr().out.splitlines()
    assert (blank, last) == ("", f"quick: runs on this machine, {cpu_name()} (x86_64), with its own target")


def test_the_same_as_json():
    finding = Finding(part="tracker", state="failed", detail="h:1", todo=("start it",))
    examined = Examined(spec="x", device="rpc://h:1/k", findings=(finding,), can_run=False, verdict="x cannot run")
    assert json.loads(examined_json(examined)) == {
        "parts": [{"part": "tracker", "state": "failed", "detail": "h:1", "todo": ["start it"]}],
        "spec": "x",
        "device": "rpc://h:1/k",
        "can_run": False,
        "verdict": "x cannot run",
    }
    assert examined.exit_code == 3


def test_device_needs_a_spec(capsys):
    assert main(["doctor", "--device", "host"]) == 2
    assert capsys.readouterr().err == ("error: --device needs a spec as well: layoutlab doctor SPEC --device DEVICE\n")


@pytest.mark.parametrize(
    ("fields", "findings", "found"),
    [
        ({"target": KRYO}, parts(), (True, "x would run on the simulated Kryo core")),
        (
            {"target": KRYO, "device": "kryo"},
            parts(later="simulated Kryo core"),
            (True, "x would run on the simulated Kryo core"),
        ),
        (
            {"target": KRYO, "device": "kryo"},
            parts("simulated Kryo core"),
            (False, "x cannot run: the simulated Kryo core cannot be had"),
        ),
        (
            {"device": "kryo"},
            parts(),
            (
                False,
                "x cannot run: device: kryo does not suit this spec: the target is this machine's own; the simulated "
                "core needs a target with -mcpu=kryo",
            ),
        ),
        ({}, parts("TVM"), (False, "x cannot run on this machine: see what is missing")),
        (
            {"target": KRYO},
            parts("simulated Kryo core"),
            (
                True,
                "x: no phone or board is named, and the simulated Kryo core cannot be had, so it runs on this "
                f"machine, {cpu_name()} (x86_64), with this machine's own target; the spec's target ({KRYO}) makes "
                "aarch64 code, which does not run here, and these figures say nothing about it",
            ),
        ),
    ],
)
def test_on_what_a_spec_would_run(fields, findings, found):
    assert runs_on(spec(**fields), findings) == found


def test_a_check_that_breaks_off_names_the_link_and_those_behind_it():
    found = {part: Finding(part=part, state="ok", detail="") for part in ("tracker", "key", "device", "versions")}
    close_chain(found, RpcAddress(tracker="h:1", key="k"), StageError("architecture", "no sign of life for 90 s"))
    assert [(finding.part, finding.state, finding.detail) for finding in list(found.values())[4:]] == [
        ("architecture", "failed", "no answer"),
        ("CPU features", "not tried", "needs: architecture"),
        ("transfer", "not tried", "not reached"),
        ("kernel", "not tried", "needs: architecture, CPU features, transfer"),
        ("baseline", "not tried", "not reached"),
        ("clock", "not tried", "needs: kernel"),
    ]
    assert found["architecture"].todo == ("no sign of life for 90 s",)


def test_a_check_that_does_not_begin():
    found: dict[str, Finding] = {}
    close_chain(found, RpcAddress(agents=("h:1",)), StageError("start", "ImportError: libtvm is broken"))
    assert (found["agent"].state, found["agent"].todo) == ("failed", ("ImportError: libtvm is broken",))
    assert {finding.state for part, finding in found.items() if part != "agent"} == {"not tried"}
