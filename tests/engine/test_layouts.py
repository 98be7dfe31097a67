"""Layouts in the IR itself: what is asked for is there, nothing else is, and the numbers stay TFLite's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from layoutlab import hooks
from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.layout.census import count_transforms, take_census
from layoutlab.engine.relax.layout.convert import apply_plan, require_change
from layoutlab.engine.relax.layout.plan import plan
from layoutlab.engine.relax.lower import _require_lowered
from layoutlab.engine.relax.tvm_cpu import tvm
from layoutlab.errors import StageError
from layoutlab.hooks import ConvLayout

from ..conftest import ROOT, TINY
from .running import Built, run_tflite, run_tvm, seeded_inputs

BIG = ROOT / "experiments" / "models" / "mobilenet_v3_large_minimalistic_224.tflite"

VARIANTS = {
    "nhwc": (None, hooks.keep),
    "nchw": ("NCHW", hooks.keep),
    "nchw4c": ("NCHW", hooks.Nchwc(4)),
    "nchw8c": ("NCHW", hooks.Nchwc(8)),
    "packed from nhwc": (None, hooks.Nchwc(8)),
    "padded": ("NCHW", hooks.Nchwc(8, pad=True)),
}


def imported(path: Path):
    return canonicalise(import_model(path.read_bytes()))


def convert(path: Path, variant: str):
    mod = imported(path)
    decisions = plan(mod, *VARIANTS[variant])
    converted, transforms = apply_plan(mod, decisions)
    return converted, take_census(converted, transforms), decisions


@pytest.mark.parametrize("variant", ["nchw", "nchw4c", "nchw8c", "packed from nhwc"])
@pytest.mark.parametrize("model", [BIG, TINY / "tiny_mobilenet.tflite"], ids=["large", "tiny"])
def test_two_transforms_in_all_however_many_convolutions(model, variant):
    mod, census, _ = convert(model, variant)
    assert [(t.after, t.before) for t in census.transforms] == [("input", "nn.conv2d"), ("add", "reshape")]
    # The one before the reshape has axes of one only, and an image's channels are one block: only NCHW moves data.
    assert count_transforms(mod) == (1 if variant == "nchw" else 0)


def test_the_large_network_is_wholly_in_the_layout_asked_for():
    expected = {
        "nhwc": {"NHWC": 48},
        "nchw": {"NCHW": 48},
        "nchw4c": {"NCHW3c->NCHW4c": 1, "NCHW4c": 47},
        "nchw8c": {"NCHW3c->NCHW8c": 1, "NCHW8c": 47},
    }
    assert {name: convert(BIG, name)[1].conv_layouts for name in expected} == expected


@pytest.mark.parametrize("name", ["tiny_conv", "tiny_mobilenet", "tiny_odd", "tiny_dense"])
def test_keep_changes_nothing_at_all(name):
    mod = imported(TINY / f"{name}.tflite")
    kept, transforms = apply_plan(mod, plan(mod, None, hooks.keep))
    assert kept is mod
    assert transforms == []


KINDS = sorted(path.stem for path in TINY.glob("*.tflite") if path.stem not in ("tiny_dynamic", "tiny_dense"))
# Rounding to 8 bits turns a difference in the last bit into a step of the scale now and then.
INT8_STEP = 1


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_tflites_in_every_layout(kind, tmp_path):
    path = TINY / f"{kind}.tflite"
    inputs = [seeded_inputs(path, seed) for seed in range(3)]
    wanted = [run_tflite(path, values) for values in inputs]
    for variant in VARIANTS:
        (tmp_path / variant).mkdir()
        built = Built(convert(path, variant)[0], tmp_path / variant)
        for values, outputs in zip(inputs, wanted, strict=True):
            for found, output in zip(built.run(values), outputs, strict=True):
                if output.dtype == np.int8:
                    assert np.abs(found.astype(int) - output).max() <= INT8_STEP, variant
                else:
                    np.testing.assert_allclose(found, output, rtol=1e-3, atol=1e-4, equal_nan=False, err_msg=variant)


# Kinds of networks whose channels 4 divides, in NCHW4c: nothing is moved but what free reshapes cover.
@pytest.mark.parametrize("kind", ["tiny_se", "tiny_resnet", "tiny_mobilenet", "tiny_groups", "tiny_int8"])
def test_networks_of_whole_blocks_move_nothing(kind):
    mod, census, decisions = convert(TINY / f"{kind}.tflite", "nchw4c")
    packed = [d for d in decisions if d.layout.out == "NCHW4c"]
    if len(packed) == len(decisions):
        assert count_transforms(mod) == 0
        assert len(census.transforms) == 2
    else:
        assert {d.why for d in decisions if d not in packed} != {""}


def test_the_two_transforms_of_the_large_network_do_not_change_its_outputs(tmp_path):
    mod, _, _ = convert(BIG, "nchw8c")
    values = seeded_inputs(BIG, 2)
    found, wanted = run_tvm(mod, values, tmp_path), run_tflite(BIG, values)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-3, atol=1e-4)


def test_channels_that_do_not_divide_keep_their_convolution():
    _, census, decisions = convert(TINY / "tiny_odd.tflite", "nchw4c")
    assert [d.answer for d in decisions] == [None] * len(decisions)
    assert set(census.conv_layouts) == {"NCHW"}


def test_a_kept_convolution_stays_between_converted_ones():
    """A neighbour's layout must not flow through it, as it does in TVM's ConvertLayout."""
    mod = imported(TINY / "tiny_mobilenet.tflite")

    def all_but_the_third(conv):
        return None if conv.index == 2 else hooks.nchw(conv)

    converted, transforms = apply_plan(mod, plan(mod, None, all_but_the_third))
    assert take_census(converted).conv_layouts == {"NCHW": 11, "NHWC": 1}
    assert [(t.after, t.before) for t in transforms] == [
        ("input", "nn.conv2d"),
        ("clip", "nn.conv2d"),
        ("clip", "nn.conv2d"),
        ("add", "reshape"),
    ]


def test_the_hook_sees_the_converted_convolution():
    seen = []
    mod = imported(TINY / "tiny_mobilenet.tflite")
    plan(mod, "NCHW", lambda conv: seen.append(conv))
    assert [conv.index for conv in seen] == list(range(12))
    assert {conv.data_layout for conv in seen} == {"NCHW"}
    assert seen[0].data_shape == (1, 3, 32, 32)
    assert seen[0].kernel_shape == (16, 3, 3, 3)
    assert seen[0].out_shape == (1, 16, 16, 16)
    assert [conv.is_depthwise for conv in seen[:4]] == [False, False, True, False]


def test_convert_layout_without_a_hook():
    mod = imported(TINY / "tiny_conv.tflite")
    assert take_census(apply_plan(mod, plan(mod, "NCHW", None))[0]).conv_layouts == {"NCHW": 2}


def failure(function) -> str:
    with pytest.raises(StageError) as caught:
        function()
    assert caught.value.stage == "layout"
    return caught.value.cause


def test_a_hook_that_raises_is_named_with_its_convolution():
    def broken(conv):
        return {}["layout"]

    mod = imported(TINY / "tiny_conv.tflite")
    assert failure(lambda: plan(mod, None, broken)) == "the hook raised KeyError at conv 0: 'layout'"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("NCHW", "the hook answered 'NCHW' at conv 0: expected a ConvLayout or None"),
        (
            ConvLayout(data="NCHW", kernel="OIHW", out="NHWC"),
            "conv 0 cannot run as data NCHW, kernel OIHW, out NHWC: a plain convolution needs equal data and out "
            "layouts and a four-letter kernel layout",
        ),
        (
            ConvLayout(data="NCHW8c", kernel="OIHW4o", out="NCHW8c"),
            "conv 0 cannot run as data NCHW8c, kernel OIHW4o, out NCHW8c: expected NHWC, NCHW, or data NCHW<a>c with "
            "kernel OIHW<b>o and out NCHW<b>c",
        ),
        (
            ConvLayout(data="NCHW5c", kernel="OIHW8o", out="NCHW8c"),
            "conv 0 cannot run as data NCHW5c, kernel OIHW8o, out NCHW8c: 8 input and 16 output channels do not "
            "divide into these blocks",
        ),
    ],
)
def test_an_answer_without_a_kernel_is_refused(answer, message):
    mod = imported(TINY / "tiny_conv.tflite")
    assert failure(lambda: plan(mod, None, lambda conv: answer)) == message


def changed(name: str, convert_layout, hook):
    mod = imported(TINY / f"{name}.tflite")
    require_change(plan(mod, convert_layout, hook), convert_layout, hook)


def test_a_conversion_that_changes_nothing_is_a_failure():
    packed = (
        "NCHW8c was asked for, but it changed nothing: all 4 convolutions stay {} (3 input and 6 output channels do "
        "not divide by 8, and so on). Leave it out to compare the model as it is, or ask for a layout their channels "
        "allow"
    )
    assert failure(lambda: changed("tiny_odd", None, hooks.Nchwc(8))) == packed.format("NHWC")
    assert failure(lambda: changed("tiny_odd", "NCHW", hooks.Nchwc(8))) == packed.format("NCHW")
    assert failure(lambda: changed("tiny_conv", "NHWC", hooks.keep)) == (
        "NHWC was asked for, but it changed nothing: all 2 convolutions stay NHWC. Leave it out to compare the model "
        "as it is, or ask for a layout their channels allow"
    )
    assert failure(lambda: changed("tiny_conv", None, hooks.nhwc)).startswith("NHWC was asked for, but it changed")
    assert failure(lambda: changed("tiny_dense", "NCHW", None)) == (
        "NCHW was asked for, but the model has no conv2d to convert"
    )
    assert failure(lambda: changed("tiny_dense", None, hooks.Nchwc(8))) == (
        "NCHW8c was asked for, but the model has no conv2d to convert"
    )
    changed("tiny_conv", None, hooks.keep)
    changed("tiny_conv", None, lambda conv: None)
    changed("tiny_conv", "NCHW", None)
    changed("tiny_odd", None, hooks.Nchwc(8, pad=True))


def test_an_operator_without_a_kernel_fails_the_lowering():
    """A packed layout reaches a pool that has no packed kernel, say: TVM only logs it."""
    x = tvm.relax.Var("x", tvm.relax.TensorType((1, 2, 4, 4, 8), "float32"))
    w = tvm.relax.Var("w", tvm.relax.TensorType((2, 16, 1, 1, 8), "float32"))
    builder = tvm.relax.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            conv = tvm.relax.op.nn.conv2d(x, w, data_layout="NCHW8c", kernel_layout="OIHW8o", out_layout="NCHW8c")
            out = builder.emit_output(builder.emit(conv))
        builder.emit_func_output(out)
    with pytest.raises(StageError) as caught:
        _require_lowered(builder.get())
    assert "1 operators have no kernel: nn.conv2d" in caught.value.cause


def test_a_malformed_model_is_an_import_failure():
    with pytest.raises(StageError) as caught:
        import_model(b"\x18\x00\x00\x00TFL3" + b"\x00" * 8)
    assert caught.value.stage == "import"
    assert caught.value.cause.startswith("TVM cannot import this model: ")
