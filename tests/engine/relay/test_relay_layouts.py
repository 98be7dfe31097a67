"""Layouts by a real Relay: what is asked for is what the lowered module has."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutlab.engine.relay.interpreter import ask, describe
from layoutlab.errors import DeviceError, StageError

from ...conftest import TINY
from .conftest import KRYO, laid_out

MOBILENET = TINY / "tiny_mobilenet.tflite"


def transforms(found: dict[str, object]) -> int:
    census = found["census_after"]
    assert isinstance(census, dict)
    return len(census["transforms"])


def test_it_says_what_it_is(relay_python: str) -> None:
    engine = describe(relay_python, KRYO, None)
    assert "Relay of TVM 0." in engine.line
    assert engine.described["none_keeps"] is True
    assert set(engine.described["convs"]) == {"NHWC conv", "NHWC depthwise", "NCHW conv", "NCHW depthwise"}
    assert engine.described["convs"]["NHWC depthwise"] == {
        "hook": "keeps it",
        "schedule": "depthwise_conv2d_nhwc.arm_cpu",
    }


def test_none_from_the_hook_keeps_every_convolution(relay_python: str, tmp_path: Path) -> None:
    found = laid_out(relay_python, MOBILENET, tmp_path)
    assert found["census_before"]["conv_layouts"] == {"NHWC": 12}
    assert found["census_after"] == {"conv_layouts": {"NHWC": 12}, "transforms": []}


def test_a_converted_network_has_two_transforms(relay_python: str, tmp_path: Path) -> None:
    found = laid_out(relay_python, MOBILENET, tmp_path, convert_layout="NCHW")
    assert found["census_after"]["conv_layouts"] == {"NCHW": 12}
    assert [(each["after"], each["before"]) for each in found["census_after"]["transforms"]] == [
        ("input", "nn.conv2d"),
        ("add", "reshape"),
    ]


def test_answers_of_a_hook_are_carried_out_one_by_one(relay_python: str, tmp_path: Path) -> None:
    convs = ask(relay_python, "convs", {"model": str(MOBILENET), "layout": None}, folder=tmp_path)["after"]
    assert [conv["index"] for conv in convs] == list(range(12))
    # Pointwise convolutions packed by eight, all others kept.
    decisions = [["NCHW8c", "OIHW8o", "NCHW8c"] if conv["kernel_shape"][:2] == [1, 1] else None for conv in convs]
    found = laid_out(relay_python, MOBILENET, tmp_path, decisions=decisions)
    assert found["layouts_after"] == ["NHWC" if decision is None else "NCHW8c" for decision in decisions]
    assert transforms(found) > 2


def test_a_packed_network_has_two_transforms(relay_python: str, tmp_path: Path) -> None:
    first = ["NCHW3c", "OIHW8o", "NCHW8c"]
    found = laid_out(relay_python, MOBILENET, tmp_path, decisions=[first] + [["NCHW8c", "OIHW8o", "NCHW8c"]] * 11)
    assert found["census_after"]["conv_layouts"] == {"NCHW3c->NCHW8c": 1, "NCHW8c": 11}
    assert transforms(found) == 2


def test_what_fails_inside_is_one_line(relay_python: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(MOBILENET.read_bytes()[:2000])
    with pytest.raises(StageError) as caught:
        ask(relay_python, "convs", {"model": str(broken), "layout": None}, folder=tmp_path)
    assert caught.value.stage == "import"
    assert "\n" not in caught.value.cause
    assert [path.name for path in tmp_path.iterdir()] == ["broken.tflite"]


def test_a_python_without_tvm_says_so(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="does not start a TVM with Relay: start: ModuleNotFoundError"):
        describe("/usr/bin/python3", KRYO, tmp_path / "log")
