"""What hooks may ask of Relay, and which interpreter a spec gets; no TVM is needed for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from layoutlab.engine.relay.decide import decide, require_change
from layoutlab.engine.relay.interpreter import VARIABLE, find_python
from layoutlab.errors import DeviceError, StageError
from layoutlab.hooks import Conv, ConvLayout, Nchwc, keep, nchw

CONV = Conv(
    index=0,
    op="nn.conv2d",
    data_layout="NHWC",
    kernel_layout="HWIO",
    out_layout="NHWC",
    data_shape=(1, 8, 8, 16),
    kernel_shape=(3, 3, 16, 32),
    out_shape=(1, 8, 8, 32),
    strides=(1, 1),
    padding=(1, 1, 1, 1),
    dilation=(1, 1),
    groups=1,
    dtype="float32",
)
GROUPED = replace(CONV, index=1, groups=2, kernel_shape=(3, 3, 8, 32))


def test_a_hook_is_asked_for_each() -> None:
    packed, grouped = decide([CONV, GROUPED], Nchwc(8), "as imported")
    assert packed.to_inside() == ["NCHW8c", "OIHW8o", "NCHW8c"]
    assert grouped.to_inside() is None
    assert grouped.why == "as imported; Relay has no packed convolution with groups"


def test_without_a_hook_nothing_is_decided() -> None:
    (decision,) = decide([CONV], None, "as imported")
    assert (decision.answer, decision.applied, decision.why) == (None, None, "as imported")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            ConvLayout(data="NCHW6c", kernel="OIHW8o", out="NCHW8c"),
            "convolution 0: the hook asks for data NCHW6c, kernel OIHW8o, out NCHW8c, but its channels do not divide "
            "by these blocks",
        ),
        (
            ConvLayout(data="NCHW", kernel="OIHW", out="NHWC"),
            "convolution 0: the hook asks for data NCHW, kernel OIHW, out NHWC, which Relay has no operator for: "
            "expected NHWC, NCHW or NCHW<block>c for data and out",
        ),
        (
            ConvLayout(data="NCHW8c", kernel="OIHW8o", out="NCHW8c", pad=True),
            "convolution 0: the hook asks for data NCHW8c, kernel OIHW8o, out NCHW8c with padded channels, which the "
            "Relay engine does not have",
        ),
    ],
)
def test_what_relay_cannot_do_is_refused(answer: ConvLayout, said: str) -> None:
    with pytest.raises(StageError) as caught:
        decide([CONV], lambda conv: answer, "as imported")
    assert (caught.value.stage, caught.value.cause) == ("layout", said)


def test_a_hook_that_changes_nothing_is_refused() -> None:
    converted = replace(CONV, data_layout="NCHW", kernel_layout="OIHW", out_layout="NCHW")
    for convs, hook in (([CONV], Nchwc(5)), ([converted], nchw)):
        with pytest.raises(StageError, match="the hook changed nothing: all 1 convolutions stay"):
            require_change(decide(convs, hook, "as imported"), convs, None, hook)
    require_change(decide([CONV], keep, "as imported"), [CONV], None, keep)


def test_without_an_interpreter_one_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("layoutlab.engine.relay.interpreter.FOLDER", str(tmp_path / "none"))
    with pytest.raises(DeviceError) as caught:
        find_python()
    assert str(caught.value) == (
        "engine: relay needs a TVM with Relay in an interpreter of its own, and there is none. Run `make relay`, which "
        "makes one, or name yours: engine: {kind: relay, python: PATH}, or LAYOUTLAB_RELAY_PYTHON"
    )


def test_a_named_interpreter_has_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(
        DeviceError, match=r"^engine\.python names \S+, which is no program: name the python of a Relay"
    ):
        find_python(str(tmp_path))
