"""Layouts by a real Relay: what is asked for is what the lowered module has, and where the operators went."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from layoutlab.engine.base import HookOptions
from layoutlab.engine.provenance import AS_VIEW
from layoutlab.engine.relay.compile import compile_variant, report_layouts
from layoutlab.engine.relay.interpreter import ask, describe
from layoutlab.errors import DeviceError, StageError
from layoutlab.hooks import Rule
from layoutlab.model.work import operators

from ...conftest import TINY
from .conftest import KRYO, quiet, relay_job

MOBILENET = TINY / "tiny_mobilenet.tflite"
KEEP = HookOptions(label="keep", name="keep")


def test_it_says_what_it_is(relay_python: str) -> None:
    engine = describe(relay_python, KRYO, None)
    assert "Relay of TVM 0." in engine.line
    assert engine.described["none_keeps"] is True
    assert set(engine.described["convs"]) == {"NHWC conv", "NHWC depthwise", "NCHW conv", "NCHW depthwise"}
    assert engine.described["convs"]["NHWC depthwise"] == {
        "hook": "keeps it",
        "schedule": "depthwise_conv2d_nhwc.arm_cpu",
    }


def test_a_converted_network_has_two_transforms(relay_python: str, tmp_path: Path) -> None:
    job = relay_job(relay_python, MOBILENET, tmp_path, convert_layout="NCHW", hook=KEEP)
    found = report_layouts(job, quiet)
    with pytest.raises(StageError) as caught:
        report_layouts(replace(job, convert_layout="NHWC"), quiet)
    assert caught.value.cause == (
        "convert_layout: NHWC was asked for, but it changed nothing: all 12 convolutions stay NHWC. Leave it out"
    )
    assert found.census_before.conv_layouts == {"NHWC": 12}
    assert found.census_after.conv_layouts == {"NCHW": 12}
    assert [(each.after, each.before) for each in found.census_after.transforms] == [
        ("input", "nn.conv2d"),
        ("add", "reshape"),
    ]


def test_convolutions_have_the_numbers_of_the_model(relay_python: str, tmp_path: Path) -> None:
    model = TINY / "tiny_inception.tflite"
    found = report_layouts(relay_job(relay_python, model, tmp_path, hook=KEEP), quiet)
    convs = [op for op in operators(model.read_bytes()) if op.type.endswith("CONV_2D")]
    assert [report.conv.out_shape for report in found.convs] == [op.shape for op in convs]
    assert found.census_after == found.census_before


def test_answers_of_a_hook_are_carried_out_one_by_one(relay_python: str, tmp_path: Path) -> None:
    # Pointwise convolutions packed by eight, all others kept.
    hook = HookOptions(label="1 rule", name=None, rules=(Rule(layout="NCHW8c", kernel=(1, 1)),))
    found = report_layouts(relay_job(relay_python, MOBILENET, tmp_path, hook=hook), quiet)
    assert [report.conv.index for report in found.convs] == list(range(12))
    wanted = ["NCHW8c" if report.conv.kernel_size == (1, 1) else "NHWC" for report in found.convs]
    assert [report.after for report in found.convs] == wanted
    assert found.census_after.conv_layouts == {"NHWC": wanted.count("NHWC"), "NCHW8c": wanted.count("NCHW8c")}
    assert found.convs[0].why == "as imported; the hook keeps it: no rule matches it"


def test_every_operator_is_in_a_function(relay_python: str, tmp_path: Path) -> None:
    hook = HookOptions(label="nchwc(block=4)", name="nchwc", block=4)
    job = relay_job(relay_python, MOBILENET, tmp_path, hook=hook, target={"kind": "llvm"})
    artifact = compile_variant(job, quiet)
    assert artifact.census_after.conv_layouts == {"NCHW3c->NCHW4c": 1, "NCHW4c": 11}
    assert len(artifact.census_after.transforms) == 2
    assert Path(artifact.path).name == "model.so"
    found = artifact.provenance
    assert found is not None
    assert set(found.homes) | set(found.removed) == {op.index for op in found.operators}
    assert set(found.removed.values()) <= {AS_VIEW}
    for function in found.functions:
        kinds = {found.operators[op].type for op in (*function.ops, *function.parts)}
        assert ("conv2d" in function.function) == bool(kinds & {"CONV_2D", "DEPTHWISE_CONV_2D"})
    assert [function.transforms for function in found.functions if function.transforms] == [
        ("layout_transform NHWC->NCHW3c",),
        ("layout_transform NCHW4c->NHWC",),
    ]
    assert found.functions[1].layout == "NCHW4c"


def test_what_fails_inside_is_one_line(relay_python: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(MOBILENET.read_bytes()[:2000])
    with pytest.raises(StageError) as caught:
        ask(relay_python, "convs", {"model": str(broken), "layout": None}, folder=tmp_path)
    assert caught.value.stage == "import"
    assert "\n" not in caught.value.cause
    assert [path.name for path in tmp_path.iterdir()] == ["broken.tflite"]


def test_a_python_without_tvm_says_so(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"does not start a TVM with Relay: start: ModuleNotFoundError"):
        describe("/usr/bin/python3", KRYO, tmp_path / "log")
