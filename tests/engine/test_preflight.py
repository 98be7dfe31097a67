"""What TVM cannot import is found all at once, with a reason that says what to do."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from layoutlab.engine.preflight import Preflight, Problem
from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.preflight import preflight
from layoutlab.errors import ModelError, StageError
from layoutlab.model.describe import TensorInfo

from ..conftest import TINY
from ..tflite_files import densified, dynamic_batch, edited, input_dtype, op_type, operand, quantised, sparse
from .running import run_tflite, run_tvm, seeded_inputs

CONV = TINY / "tiny_conv.tflite"
DENSE = TINY / "tiny_dense.tflite"


def found(path: Path, *changes: Any) -> list[str]:
    """The problems of an edited model as `place: reason`."""
    return [f"{p.place()}: {p.reason}" for p in preflight(edited(path, *changes)).problems]


def names(path: Path, *indices: int) -> list[str]:
    """Names of the first outputs of the operators."""
    model = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
    return [operand(model, index, 0, output=True).name.decode() for index in indices]


def import_failure(data: bytes) -> str:
    with pytest.raises(StageError) as caught:
        import_model(data)
    assert caught.value.stage == "import"
    return caught.value.cause


def test_a_model_that_can_be_imported():
    assert preflight(CONV.read_bytes()) == Preflight(
        inputs=(TensorInfo("serving_default_input:0", (1, 16, 16, 8), "float32"),),
        outputs=(TensorInfo("StatefulPartitionedCall_1:0", (1, 16), "float32"),),
        op_counts={"CONV_2D": 2, "FULLY_CONNECTED": 1, "MEAN": 1, "SOFTMAX": 1},
        problems=(),
    )


@pytest.mark.parametrize(
    "name",
    [
        "tiny/tiny_conv",
        "tiny/tiny_mobilenet",
        "tiny/tiny_odd",
        "tiny/tiny_dense",
        "mobilenet_v3_large_minimalistic_224",
    ],
)
def test_models_with_fixed_shapes_can_be_imported(name):
    assert preflight((TINY.parent / f"{name}.tflite").read_bytes()).is_importable


def test_an_edited_model_that_was_not_changed_can_be_imported():
    assert found(CONV) == []


def test_operators_without_a_converter_are_all_named():
    conv, mean = names(CONV, 1, 2)
    data = edited(CONV, op_type(1, "RNN"), op_type(2, "SKIP_GRAM"))
    assert preflight(data).problems == (
        Problem(
            op=1,
            type="RNN",
            output=conv,
            shape=(1, 16, 16, 32),
            reason="TVM's importer has no converter for RNN; build the model without it",
        ),
        Problem(
            op=2,
            type="SKIP_GRAM",
            output=mean,
            shape=(1, 32),
            reason="TVM's importer has no converter for SKIP_GRAM; build the model without it",
        ),
    )
    assert import_failure(data) == (
        f"TVM cannot import this model: op 1 RNN, output {conv} [1, 16, 16, 32]: TVM's importer has no converter for "
        f"RNN; build the model without it; op 2 SKIP_GRAM, output {mean} [1, 32]: TVM's importer has no converter "
        "for SKIP_GRAM; build the model without it"
    )


def test_custom_operators():
    conv, mean = names(CONV, 0, 2)
    assert found(CONV, op_type(0, "CUSTOM", "Mine"), op_type(2, "CUSTOM", "FlexAddV2")) == [
        f"op 0 CUSTOM:Mine, output {conv} [1, 16, 16, 16]: TVM's importer has no converter for custom operators; "
        "build the model without this one",
        f"op 2 CUSTOM:FlexAddV2, output {mean} [1, 32]: the operator is TensorFlow's own; convert the model with "
        "TFLite's builtin operators only (no SELECT_TF_OPS)",
    ]


def test_a_converter_that_fails_without_a_word_shows_what_it_wanted():
    (name,) = names(CONV, 0)
    assert found(CONV, op_type(0, "CONV_2D")) == [
        f"op 0 CONV_2D, output {name} [1, 16, 16, 16]: TVM's converter fails with AssertionError: no message, raised "
        "by `assert op.BuiltinOptionsType() == BuiltinOptions.Conv2DOptions`"
    ]


def test_what_follows_from_another_problem_says_so():
    first, second = names(CONV, 0, 1)
    broken = found(CONV, op_type(0, "RNN"), op_type(1, "DEPTHWISE_CONV_2D"))
    assert broken[0].startswith(f"op 0 RNN, output {first} ")
    assert broken[1].startswith(f"op 1 DEPTHWISE_CONV_2D, output {second} ")
    assert broken[1].endswith(" (perhaps only because of op 0, whose output it reads)")
    assert len(broken) == 2


def test_dynamic_range_quantisation():
    first, third = names(DENSE, 0, 2)
    reason = (
        "the weights are quantised but the data is not (dynamic-range quantisation), which TVM's importer does not "
        "read; convert the model in float, or with full integer quantisation"
    )
    data = edited(DENSE, quantised(0, 1), quantised(2, 1))
    assert [f"{p.place()}: {p.reason}" for p in preflight(data).problems] == [
        f"op 0 FULLY_CONNECTED, output {first} [1, 128]: {reason}",
        f"op 2 FULLY_CONNECTED, output {third} [1, 16]: {reason}",
    ]
    # The same reason is said once.
    assert import_failure(data) == (
        f"TVM cannot import this model: op 0 FULLY_CONNECTED, output {first} [1, 128], "
        f"op 2 FULLY_CONNECTED, output {third} [1, 16]: {reason}"
    )


def test_an_operator_that_has_no_quantised_form():
    (name,) = names(CONV, 4)
    changes = [op_type(4, "ELU"), quantised(4, 0), quantised(4, 0, output=True)]
    assert found(CONV, *changes)[-1] == (
        f"op 4 ELU, output {name} [1, 16]: TVM's importer has no quantised ELU; convert the model in float"
    )


def test_sparse_weights():
    first, second = names(DENSE, 0, 1)
    reason = (
        "the weights are stored sparse, in a form TVM's importer does not read; convert the model without sparsity, or "
        "make its weights dense before converting"
    )
    assert found(DENSE, sparse(0, 1), sparse(1, 1)) == [
        f"op 0 FULLY_CONNECTED, output {first} [1, 128]: {reason}",
        f"op 1 FULLY_CONNECTED, output {second} [1, 128]: {reason}",
    ]


def test_sparse_float_weights_that_the_model_makes_dense_can_be_imported(tmp_path):
    data = edited(DENSE, sparse(0, 1), densified(0, 1))
    assert preflight(data).op_counts["DENSIFY"] == 1
    assert preflight(data).is_importable
    path = tmp_path / "densified.tflite"
    path.write_bytes(data)
    inputs = seeded_inputs(path, seed=1)
    (built,), (expected,) = run_tvm(canonicalise(import_model(data)), inputs, tmp_path), run_tflite(path, inputs)
    np.testing.assert_allclose(built, expected, rtol=1e-3, atol=1e-5, equal_nan=False)


def test_tensors_named_alike_are_never_mixed_up_silently():
    def alike(model: Any) -> None:
        for index in (0, 2, 3):
            operand(model, index, 0, output=True).name = b"same"

    data = edited(CONV, alike)
    cause = (
        'the model: several tensors are named "same", and TVM\'s importer tells tensors apart by their names; convert '
        "the model with a name of its own for each tensor"
    )
    assert import_failure(data).startswith(f"TVM cannot import this model: {cause}")
    assert found(CONV, alike)[0] == cause


def test_a_dynamic_batch_is_named_and_the_rest_is_checked_all_the_same():
    (name,) = names(CONV, 2)
    assert found(CONV, dynamic_batch, op_type(2, "SKIP_GRAM")) == [
        "input serving_default_input:0: the shape [-1, 16, 16, 8] is dynamic, and layouts are chosen for fixed ones; "
        "bind a dynamic batch with model.batch in the spec, and convert the model anew for any other dimension",
        f"op 2 SKIP_GRAM, output {name} [1, 32]: TVM's importer has no converter for SKIP_GRAM; build the model "
        "without it",
    ]


@pytest.mark.parametrize("dtype", ["STRING", "FLOAT64", "RESOURCE", "INT4", "BFLOAT16"])
def test_an_input_of_a_dtype_without_a_relax_one_and_the_rest_is_checked_all_the_same(dtype):
    (name,) = names(CONV, 2)
    assert found(CONV, input_dtype(dtype), op_type(2, "SKIP_GRAM")) == [
        f"input serving_default_input:0: TVM's importer takes no input of dtype {dtype.lower()}; build the model with "
        "a numeric input",
        f"op 2 SKIP_GRAM, output {name} [1, 32]: TVM's importer has no converter for SKIP_GRAM; build the model "
        "without it",
    ]


def test_resource_variables():
    def variable(model: Any) -> None:
        """A variable from the model's input, assigned to in every inference."""
        op_type(0, "ASSIGN_VARIABLE")(model)
        op_type(1, "READ_VARIABLE")(model)
        graph = model.subgraphs[0]
        graph.operators[1].inputs = [graph.inputs[0]]

    first, second = names(CONV, 0, 1)
    assert found(CONV, variable) == [
        f"op 0 ASSIGN_VARIABLE, output {first} [1, 16, 16, 16]: TVM's converter fails with OpNotImplemented: "
        "ASSIGN_VARIABLE outside CALL_ONCE initialization is not supported by the Relax TFLite frontend yet because "
        "it requires mutable resource state modeling; make the model's variables constants before converting "
        "(freeze it)",
        f"op 1 READ_VARIABLE, output {second} [1, 16, 16, 32]: TVM's converter fails with OpNotImplemented: "
        "READ_VARIABLE requires a VAR_HANDLE in the same TFLite subgraph; make the model's variables constants "
        "before converting (freeze it)",
    ]


def calls_a_branch(name: str) -> Any:
    """Operator 4 calls a second subgraph, a copy of the softmax with operator type `name`."""

    def change(model: Any) -> None:
        import copy

        graph = model.subgraphs[0]
        branch = copy.deepcopy(graph)
        softmax = branch.operators[4]
        branch.operators, branch.inputs, branch.outputs = [softmax], list(softmax.inputs), list(softmax.outputs)
        model.subgraphs.append(branch)
        op_type(4, "CALL")(model)
        call = graph.operators[4]
        call.builtinOptionsType, call.builtinOptions = schema.BuiltinOptions.CallOptions, schema.CallOptionsT()
        call.builtinOptions.subgraph = 1
        if name != "SOFTMAX":
            model.operatorCodes.append(schema.OperatorCodeT())
            model.operatorCodes[-1].builtinCode = model.operatorCodes[-1].deprecatedBuiltinCode = getattr(
                schema.BuiltinOperator, name
            )
            softmax.opcodeIndex = len(model.operatorCodes) - 1

    return change


def test_a_called_subgraph_is_checked_too():
    (name,) = names(CONV, 4)
    assert found(CONV, calls_a_branch("SOFTMAX")) == []
    assert found(CONV, calls_a_branch("RNN")) == [
        f"op 0 of subgraph 1 RNN, output {name} [1, 16]: TVM's importer has no converter for RNN; build the model "
        "without it"
    ]


def test_control_flow_the_importer_refuses():
    def to_nowhere(model: Any) -> None:
        calls_a_branch("SOFTMAX")(model)
        model.subgraphs[0].operators[4].builtinOptions.subgraph = 7

    (name,) = names(CONV, 4)
    assert found(CONV, to_nowhere) == [
        f"op 4 CALL, output {name} [1, 16]: TVM's converter fails with OpNotImplemented: CALL requires a valid "
        "subgraph index; convert the model without control flow"
    ]


def test_a_failure_outside_of_the_operators_is_one_problem():
    def no_input(model: Any) -> None:
        model.subgraphs[0].outputs = [model.subgraphs[0].operators[0].inputs[1]]
        model.buffers[model.subgraphs[0].tensors[model.subgraphs[0].outputs[0]].buffer].data = bytes(4)
        model.subgraphs[0].operators = []

    assert found(CONV, no_input) == [
        "the model: TVM's importer fails with ValueError: cannot reshape array of size 1 into shape (16,3,3,8)"
    ]


def test_many_problems_on_one_line_are_the_first_five():
    big = TINY / "tiny_mobilenet.tflite"
    changes = [op_type(index, "RNN") for index in range(8)]
    cause = import_failure(edited(big, *changes))
    assert cause.count(" RNN, output ") == 5
    assert cause.count("TVM's importer has no converter for RNN") == 1
    assert cause.endswith("; and 3 more (all of them: layoutlab import MODEL)")
    assert "\n" not in cause


@pytest.mark.parametrize("length", [40, 2000, 11000])
def test_a_truncated_file_is_malformed_and_nothing_else(length):
    data = CONV.read_bytes()[:length]
    with pytest.raises(ModelError) as caught:
        preflight(data)
    assert str(caught.value).startswith("parsing the TFLite flatbuffer: the file is malformed (")
    assert import_failure(data).startswith("TVM cannot import this model: parsing the TFLite flatbuffer: the file is")


def test_a_damaged_file_never_raises_anything_but_a_model_error():
    data = CONV.read_bytes()
    # The structure lies at both ends of the file, the weights between: flip where it hurts.
    places = [*range(512), *range(len(data) - 2048, len(data))]
    rng = random.Random(1)
    found = set()
    for _ in range(100):
        damaged = bytearray(data)
        for place in rng.sample(places, rng.randint(1, 8)):
            damaged[place] ^= rng.randint(1, 255)
        try:
            found.add(preflight(bytes(damaged)).is_importable)
        except ModelError:
            found.add(None)
    assert found == {True, False, None}
