import random
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
import tflite

from layoutlab.errors import ModelError
from layoutlab.model.describe import ModelDescription, Op, TensorInfo, describe

from ..tflite_files import edited, op_type

BIG = "mobilenet_v3_large_minimalistic_224.tflite"
MUTATIONS = 200


def description(models: Path, name: str) -> ModelDescription:
    return describe((models / name).read_bytes())


@pytest.mark.parametrize(
    ("name", "input_shape", "output_shape", "counts"),
    [
        (
            BIG,
            (1, 224, 224, 3),
            (1, 1000),
            {"CONV_2D": 33, "DEPTHWISE_CONV_2D": 15, "ADD": 10, "MEAN": 1, "RESHAPE": 1, "SOFTMAX": 1},
        ),
        (
            "tiny/tiny_conv.tflite",
            (1, 16, 16, 8),
            (1, 16),
            {"CONV_2D": 2, "FULLY_CONNECTED": 1, "MEAN": 1, "SOFTMAX": 1},
        ),
        (
            "tiny/tiny_mobilenet.tflite",
            (1, 32, 32, 3),
            (1, 16),
            {"CONV_2D": 9, "DEPTHWISE_CONV_2D": 3, "ADD": 2, "MEAN": 1, "RESHAPE": 1, "SOFTMAX": 1},
        ),
        (
            "tiny/tiny_odd.tflite",
            (1, 17, 23, 3),
            (1, 10),
            {
                "CONV_2D": 3,
                "DEPTHWISE_CONV_2D": 1,
                "FULLY_CONNECTED": 1,
                "MAX_POOL_2D": 1,
                "MEAN": 1,
                "SOFTMAX": 1,
            },
        ),
        ("tiny/tiny_dense.tflite", (1, 64), (1, 16), {"FULLY_CONNECTED": 3, "SOFTMAX": 1}),
        (
            "tiny/tiny_se.tflite",
            (1, 32, 32, 3),
            (1, 16),
            {
                "CONV_2D": 12,
                "HARD_SWISH": 7,
                "MUL": 4,
                "MEAN": 3,
                "DEPTHWISE_CONV_2D": 2,
                "ADD": 1,
                "RESHAPE": 1,
                "SOFTMAX": 1,
            },
        ),
        (
            "tiny/tiny_resnet.tflite",
            (1, 32, 32, 3),
            (1, 16),
            {"CONV_2D": 8, "ADD": 2, "PAD": 2, "FULLY_CONNECTED": 1, "MAX_POOL_2D": 1, "MEAN": 1, "SOFTMAX": 1},
        ),
        (
            "tiny/tiny_inception.tflite",
            (1, 27, 35, 3),
            (1, 16),
            {
                "CONV_2D": 10,
                "CONCATENATION": 2,
                "AVERAGE_POOL_2D": 1,
                "FULLY_CONNECTED": 1,
                "MAX_POOL_2D": 1,
                "MEAN": 1,
                "SOFTMAX": 1,
            },
        ),
        (
            "tiny/tiny_groups.tflite",
            (1, 20, 28, 1),
            (1, 16),
            {"CONV_2D": 3, "DEPTHWISE_CONV_2D": 2, "FULLY_CONNECTED": 1, "MEAN": 1, "SOFTMAX": 1},
        ),
        (
            "tiny/tiny_dynamic.tflite",
            (-1, 16, 16, 8),
            (-1, 16),
            {"CONV_2D": 2, "FULLY_CONNECTED": 1, "MEAN": 1, "SOFTMAX": 1},
        ),
    ],
)
def test_inputs_outputs_and_census(
    models: Path,
    name: str,
    input_shape: tuple[int, ...],
    output_shape: tuple[int, ...],
    counts: dict[str, int],
) -> None:
    found = description(models, name)
    assert found.inputs == (TensorInfo("serving_default_input:0", input_shape, "float32"),)
    assert [(tensor.shape, tensor.dtype) for tensor in found.outputs] == [(output_shape, "float32")]
    assert list(found.op_counts().items()) == list(counts.items())
    assert [op.index for op in found.ops] == list(range(sum(counts.values())))


def test_two_outputs(models: Path) -> None:
    found = description(models, "tiny/tiny_resize.tflite")
    assert [(tensor.shape, tensor.dtype) for tensor in found.outputs] == [
        ((1, 16), "float32"),
        ((1, 16, 24, 1), "float32"),
    ]
    assert found.op_counts() == {
        "CONV_2D": 5,
        "PRELU": 4,
        "CONCATENATION": 1,
        "FULLY_CONNECTED": 1,
        "LOGISTIC": 1,
        "MEAN": 1,
        "RESIZE_BILINEAR": 1,
        "RESIZE_NEAREST_NEIGHBOR": 1,
        "SOFTMAX": 1,
    }


def test_quantised_model(models: Path) -> None:
    found = description(models, "tiny/tiny_int8.tflite")
    assert [(tensor.shape, tensor.dtype) for tensor in found.inputs] == [((1, 32, 32, 3), "int8")]
    assert [(tensor.shape, tensor.dtype) for tensor in found.outputs] == [((1, 16), "int8")]
    # The input and the output are int8 by themselves, without operators that convert them.
    assert found.op_counts() == description(models, "tiny/tiny_mobilenet.tflite").op_counts()


def test_only_the_batch_of_the_dynamic_model_is_dynamic(models: Path) -> None:
    found = description(models, "tiny/tiny_dynamic.tflite")
    fixed = description(models, "tiny/tiny_conv.tflite")
    assert found.inputs[0].is_dynamic
    assert [op.output_shape for op in found.ops] == [(-1, *op.output_shape[1:]) for op in fixed.ops]


def test_operators_come_in_order_with_their_shapes(models: Path) -> None:
    assert description(models, "tiny/tiny_conv.tflite").ops == (
        Op(0, "CONV_2D", (1, 16, 16, 16)),
        Op(1, "CONV_2D", (1, 16, 16, 32)),
        Op(2, "MEAN", (1, 32)),
        Op(3, "FULLY_CONNECTED", (1, 16)),
        Op(4, "SOFTMAX", (1, 16)),
    )


def test_fixed_model_is_not_dynamic(models: Path) -> None:
    assert not description(models, BIG).inputs[0].is_dynamic


def dynamic_model(builtin_code: int, custom_code: str = "", tensor_type: int = 0) -> bytes:
    """One operator from x, with an unknown batch, to the same x."""
    b = flatbuffers.Builder()
    name, code = b.CreateString("x"), b.CreateString(custom_code)
    shape = b.CreateNumpyVector(_int32([1, 4]))
    signature = b.CreateNumpyVector(_int32([-1, 4]))
    io = b.CreateNumpyVector(_int32([0]))

    tflite.TensorStart(b)
    tflite.TensorAddName(b, name)
    tflite.TensorAddShape(b, shape)
    tflite.TensorAddShapeSignature(b, signature)
    tflite.TensorAddType(b, tensor_type)
    tensors = _vector(b, tflite.TensorEnd(b))
    tflite.OperatorStart(b)
    tflite.OperatorAddOutputs(b, io)
    operators = _vector(b, tflite.OperatorEnd(b))
    tflite.SubGraphStart(b)
    tflite.SubGraphAddTensors(b, tensors)
    tflite.SubGraphAddInputs(b, io)
    tflite.SubGraphAddOutputs(b, io)
    tflite.SubGraphAddOperators(b, operators)
    graphs = _vector(b, tflite.SubGraphEnd(b))
    tflite.OperatorCodeStart(b)
    tflite.OperatorCodeAddBuiltinCode(b, builtin_code)
    tflite.OperatorCodeAddDeprecatedBuiltinCode(b, min(builtin_code, 127))
    tflite.OperatorCodeAddCustomCode(b, code)
    codes = _vector(b, tflite.OperatorCodeEnd(b))
    tflite.ModelStart(b)
    tflite.ModelAddSubgraphs(b, graphs)
    tflite.ModelAddOperatorCodes(b, codes)
    b.Finish(tflite.ModelEnd(b), b"TFL3")
    return bytes(b.Output())


def _int32(values: list[int]) -> np.ndarray:
    return np.array(values, np.int32)


def _vector(builder: flatbuffers.Builder, offset: int) -> int:
    builder.StartVector(4, 1, 4)
    builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()


def test_dynamic_dimension_shows_as_minus_one() -> None:
    found = describe(dynamic_model(tflite.BuiltinOperator.RELU))
    assert found.inputs == (TensorInfo("x", (-1, 4), "float32"),)
    assert found.inputs[0].is_dynamic
    assert found.ops == (Op(0, "RELU", (-1, 4)),)


def test_operator_with_a_code_over_127() -> None:
    assert describe(dynamic_model(tflite.BuiltinOperator.GELU)).ops[0].type == "GELU"


def test_custom_operator_keeps_its_code() -> None:
    found = describe(dynamic_model(tflite.BuiltinOperator.CUSTOM, "NonMaxSuppression"))
    assert found.ops[0].type == "CUSTOM:NonMaxSuppression"


def test_quantised_dtype() -> None:
    found = describe(dynamic_model(tflite.BuiltinOperator.RELU, tensor_type=tflite.TensorType.INT8))
    assert found.inputs[0].dtype == "int8"


def test_unknown_operator_and_dtype_name_the_stage_and_the_cause() -> None:
    stage = "parsing the TFLite flatbuffer: the file is malformed"
    with pytest.raises(ModelError) as caught:
        describe(dynamic_model(9999))
    assert str(caught.value) == f"{stage} (ValueError: builtin operator 9999 is not in the schema)"
    with pytest.raises(ModelError) as caught:
        describe(dynamic_model(0, tensor_type=99))
    assert str(caught.value) == f"{stage} (ValueError: tensor type 99 is not in the schema)"


def test_no_bytes_and_a_bare_header() -> None:
    for data in (b"", b"\x00\x00\x00\x00TFL3", b"\xff\xff\xff\xffTFL3"):
        with pytest.raises(ModelError, match="parsing the TFLite flatbuffer"):
            describe(data)


def outcome(data: bytes) -> bool:
    """Whether `data` could be described; anything but a description or a ModelError fails the test."""
    try:
        assert isinstance(describe(data), ModelDescription)
    except ModelError as error:
        assert "parsing the TFLite flatbuffer" in str(error)
        return False
    return True


def test_truncated_file_never_raises_anything_else(models: Path) -> None:
    data = (models / "tiny/tiny_conv.tflite").read_bytes()
    results = [outcome(data[:size]) for size in range(0, len(data), 97)]
    assert not all(results)


def test_flipped_bytes_never_raise_anything_else(models: Path) -> None:
    data = (models / "tiny/tiny_conv.tflite").read_bytes()
    # The structure lies at both ends of the file, the weights between: flip where it hurts.
    places = [*range(512), *range(len(data) - 2048, len(data))]
    rng = random.Random(1)
    results = []
    for _ in range(MUTATIONS):
        damaged = bytearray(data)
        for place in rng.sample(places, rng.randint(1, 8)):
            damaged[place] ^= rng.randint(1, 255)
        results.append(outcome(bytes(damaged)))
    assert any(results) and not all(results)


def test_names_steer_no_terminal(models: Path) -> None:
    def rename(model: Any) -> None:
        graph = model.subgraphs[0]
        graph.tensors[graph.inputs[0]].name = b"in\x1b[2J\xe2\x80\xaeput\n\xff"

    found = describe(edited(models / "tiny/tiny_conv.tflite", rename, op_type(0, "CUSTOM", "own\x07")))
    assert found.inputs[0].name == "in\ufffd[2J\ufffdput\ufffd\ufffd"
    assert found.ops[0].type == "CUSTOM:own\ufffd"
