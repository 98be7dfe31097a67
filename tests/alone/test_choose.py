"""Which operators are cut out together, in which variants, and what the derived spec says."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutlab.alone.choose import Built, conv_numbers, fitting_variants, fused_with, needs_numbers
from layoutlab.alone.derive import derive, name_alone
from layoutlab.engine.base import Artifact, Census, ConvReport
from layoutlab.engine.provenance import AT_COMPILE_TIME, ExecutedFunction, Operator, Provenance
from layoutlab.errors import UsageError
from layoutlab.hooks import Conv
from layoutlab.progress import Progress
from layoutlab.spec.load import LoadedSpec, load_spec

SPEC = """\
name: x
model: {file: m.tflite, batch: 2, input_range: [0, 1]}
device: host
baseline: {threads: 1}
variants:
  - {name: keep, alter_op_layout: keep}
  - {name: nchw, convert_layout: NCHW}
  - {name: packed, alter_op_layout: nchwc}
  - {name: rules, alter_op_layout: {rules: [{match: {kernel: 1x1}, layout: NCHW}]}}
tuning: {trials: 1000, skip: [softmax, "3"]}
"""


def load(folder: Path, text: str = SPEC) -> LoadedSpec:
    (folder / "x.yaml").write_text(text)
    return load_spec(folder / "x.yaml")


def op(index: int, type_: str) -> Operator:
    return Operator(index=index, type=type_, output=f"t{index}", shape=(1,), flop=1, bytes=1)


def function(node: int, *ops: int) -> ExecutedFunction:
    return ExecutedFunction(
        node=node, function=f"f{node}", task="t", ops=ops, parts=(), transforms=(), shape=(1,), dtype="float32",
        layout=None, flop=1, bytes=1,
    )  # fmt: skip


CENSUS = Census(conv_layouts={}, transforms=())
CONV = Conv(
    index=0, op="nn.conv2d", data_layout="NHWC", kernel_layout="HWIO", out_layout="NHWC", data_shape=(1, 4, 4, 8),
    kernel_shape=(1, 1, 8, 8), out_shape=(1, 4, 4, 8), strides=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1,
    dtype="float32",
)  # fmt: skip


def built(variant: str, *functions: ExecutedFunction, convs: int = 2) -> Built:
    """A variant of DEQUANTIZE (of a weight), CONV_2D, ADD, MEAN and CONV_2D."""
    types = ("DEQUANTIZE", "CONV_2D", "ADD", "MEAN", "CONV_2D")
    provenance = Provenance(
        operators=tuple(op(index, name) for index, name in enumerate(types)),
        functions=functions,
        removed={0: AT_COMPILE_TIME},
    )
    report = ConvReport(conv=CONV, before="NHWC", answer=None, after="NHWC", why="")
    artifact = Artifact(path="x", sha256="0", census_before=CENSUS, census_after=CENSUS, convs=(report,) * convs)
    return Built(variant=variant, artifact=artifact, provenance=provenance)


SPLIT = built("nchw", function(0, 1), function(1, 2), function(2, 4))
FUSED = built("nhwc", function(0, 1, 2), function(1, 4))


def test_what_one_function_computes_is_cut_out_together():
    found = fused_with([SPLIT, FUSED], 2)
    assert (found.ops, found.variant, found.function) == ((1, 2), "nhwc", "f0")
    assert fused_with([SPLIT], 2).ops == (2,)


def test_an_op_of_no_function_is_cut_out_alone():
    found = fused_with([FUSED], 3)
    assert (found.ops, found.function) == ((3,), None)


def test_what_is_folded_away_is_refused():
    with pytest.raises(UsageError) as error:
        fused_with([SPLIT, FUSED], 0)
    assert str(error.value) == (
        "op 0 DEQUANTIZE is computed at compile time from constants: no layout and no tuning changes that"
    )


def test_convolutions_keep_their_numbers():
    assert conv_numbers(FUSED, (1, 2)) == (0,)
    assert conv_numbers(FUSED, (2, 3, 4)) == (1,)
    with pytest.raises(UsageError) as error:
        conv_numbers(built("nhwc", function(0, 1, 2), convs=3), (1,))
    assert str(error.value) == (
        "hooks of this spec ask for numbers of convolutions, and TVM has 3 where the model has 2: which one this is "
        "cannot be told. Use rules without index"
    )


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        ("{rules: [{match: {kernel: 1x1}, layout: NCHW}]}", False),
        ("{rules: [{layout: NCHW}, {match: {index: 0-2}, layout: NCHW}]}", True),
        ("my_hooks:choose", True),
        ("nchwc", False),
    ],
)
def test_numbers_are_needed_by_rules_that_ask_for_them_and_by_users_hooks(tmp_path, hook, expected):
    loaded = load(tmp_path, SPEC.replace("alter_op_layout: keep", f"alter_op_layout: {hook}"))
    assert needs_numbers(loaded.spec.variants) == expected


def test_without_a_convolution_variants_that_ask_for_a_layout_are_left_out(tmp_path, capsys):
    loaded = load(tmp_path)
    assert fitting_variants(loaded.path, loaded.spec.variants, [op(1, "CONV_2D")], Progress()) == loaded.spec.variants
    found = fitting_variants(loaded.path, loaded.spec.variants, [op(3, "MEAN")], Progress())
    assert [variant.name for variant in found] == ["keep", "rules"]
    assert capsys.readouterr().err == (
        "op 3 MEAN: no layout applies, for layouts are chosen for convolutions and there is none in it; measured as it "
        "is, in keep, rules\n"
    )
    with pytest.raises(UsageError) as error:
        fitting_variants(Path("x.yaml"), loaded.spec.variants[1:3], [op(2, "ADD"), op(3, "MEAN")], Progress())
    assert str(error.value) == (
        "op 2 ADD, op 3 MEAN: no layout applies, for layouts are chosen for convolutions and there is none in it, and "
        "every tuned variant of x.yaml asks for one. To measure it as it is, add a variant such as {name: as_is, "
        "alter_op_layout: keep}"
    )


def test_the_derived_spec(tmp_path):
    loaded = load(tmp_path)
    model = tmp_path / "cut.tflite"
    variants = loaded.spec.variants[:2]
    found = derive(loaded, "x.op3", "text", model, variants, 64, 40.0, (5,), Progress())
    spec = found.spec
    assert (spec.name, spec.description, spec.variants, spec.tuning.trials) == ("x.op3", "text", variants, 64)
    assert (found.model_path, spec.model.batch, found.conv_numbers) == (model.resolve(), None, (5,))
    assert spec.tuning.skip == ()
    assert spec.check.atol == pytest.approx(100 * loaded.spec.check.atol)
    assert (spec.measure, spec.target, spec.device) == (loaded.spec.measure, loaded.spec.target, loaded.spec.device)
    assert derive(loaded, "y", "", model, variants, 1, 0.5, None, Progress()).spec.check == loaded.spec.check
    assert type(spec).model_validate(spec.model_dump(mode="json")) == spec


def test_saved_results_of_the_whole_network_are_no_baseline_of_an_op(tmp_path, capsys):
    loaded = load(tmp_path, SPEC.replace("{threads: 1}", "{runtime: benchmark_model, results: [a.txt], threads: 1}"))
    found = derive(loaded, "y", "", tmp_path / "m", loaded.spec.variants, 1, 1.0, None, Progress())
    assert (found.spec.baseline.runtime, found.spec.baseline.threads) == ("tflite", 1)
    assert capsys.readouterr().err == ("baseline.results are of the whole network: TFLite is measured by LiteRT here\n")


def test_names_are_those_of_specs():
    assert name_alone("x", 3, False) == "x.op3"
    assert name_alone("x.", 3, True) == "x.op3.bare"
    assert name_alone("y" * 64, 12, False) == "y" * 59 + ".op12"
