"""Operators cut out of a model compute, bit by bit, what they compute within it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layoutlab.errors import ModelError
from layoutlab.measure.inputs import make_inputs
from layoutlab.model.bind import bind_batch
from layoutlab.model.cut import Cut, cut
from layoutlab.model.describe import describe
from layoutlab.model.values import cut_values
from layoutlab.model.work import operators

from ..conftest import TINY
from ..tflite_files import densified, edited, op_type, operand, sparse

MODELS = sorted(path.stem for path in TINY.glob("*.tflite"))
CONV, ADD = 3, 4  # of tiny_mobilenet, the first residual block


def content(name: str) -> bytes:
    data = (TINY / f"{name}.tflite").read_bytes()
    return bind_batch(data, 2) if name == "tiny_dynamic" else data


def seeded(data: bytes, sets: int = 2) -> list[list[np.ndarray]]:
    return make_inputs([vars(tensor) for tensor in describe(data).inputs], (-1.0, 1.0), sets, 1)


@pytest.mark.parametrize("name", MODELS)
def test_every_op_and_every_pair_of_neighbours_computes_what_it_does_in_the_model(name):
    data = content(name)
    inputs, count = seeded(data), len(describe(data).ops)
    for ops in [*((index,) for index in range(count)), *((index, index + 1) for index in range(count - 1))]:
        made = cut(data, ops)
        assert made.ops == ops
        cut_values(data, made, inputs)


@pytest.mark.parametrize("name", MODELS)
def test_all_operators_are_the_whole_model(name):
    data = content(name)
    inputs = seeded(data)
    made = cut(data, range(len(describe(data).ops)))
    found, _ = cut_values(data, made, inputs)
    assert [tensor.shape for tensor in describe(made.data).inputs] == [tensor.shape for tensor in describe(data).inputs]
    assert all(
        np.array_equal(a, b) for got, given in zip(found, inputs, strict=True) for a, b in zip(got, given, strict=True)
    )


def test_what_a_cut_op_is_stays_the_same():
    for name in MODELS:
        data = content(name)
        for op in operators(data):
            (alone,) = operators(cut(data, [op.index]).data)
            assert replace(alone, index=op.index) == op


def test_types_and_quantisation_are_kept():
    import tflite

    def quantised(data: bytes) -> list[tuple[object, ...]]:
        graph = tflite.Model.GetRootAs(data, 0).Subgraphs(0)
        tensors = [graph.Tensors(index) for index in range(graph.TensorsLength())]
        parameters = [(tensor, tensor.Quantization()) for tensor in tensors]
        return [
            (t.Name(), t.Type(), q.ScaleAsNumpy().tolist(), q.ZeroPointAsNumpy().tolist())
            for t, q in parameters
            if q and q.ScaleLength()
        ]

    data = content("tiny_int8")
    whole = quantised(data)
    for op in describe(data).ops:
        found = quantised(cut(data, [op.index]).data)
        assert found
        assert all(tensor in whole for tensor in found)


def test_what_lies_between_comes_along():
    data = content("tiny_mobilenet")
    made = cut(data, [1, ADD])
    assert made.ops == (1, 2, CONV, ADD)
    # The residual's two inputs are one tensor: what op 0 computes.
    assert len(made.inputs) == 1
    assert [op.type for op in describe(made.data).ops] == ["CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D", "ADD"]


def test_inputs_from_outside_are_inputs_in_the_order_of_their_use():
    data = content("tiny_mobilenet")
    described = describe(cut(data, [CONV, ADD]).data)
    assert [tensor.shape for tensor in described.inputs] == [(1, 16, 16, 32), (1, 16, 16, 16)]
    assert [tensor.shape for tensor in described.outputs] == [(1, 16, 16, 16)]


def test_a_result_that_others_need_is_an_output_too():
    # What op 0 computes is added to the end of the block, too.
    described = describe(cut(content("tiny_mobilenet"), [0, 1]).data)
    assert [tensor.shape for tensor in described.inputs] == [(1, 32, 32, 3)]
    assert [tensor.shape for tensor in described.outputs] == [(1, 16, 16, 16), (1, 16, 16, 32)]


def test_what_computes_weights_comes_along_and_is_nothing_of_its_own():
    data = edited(TINY / "tiny_dense.tflite", sparse(0, 1), densified(0, 1))
    assert cut(data, [1]).ops == (0, 1)
    with pytest.raises(ModelError) as error:
        cut(data, [0])
    assert str(error.value) == (
        "op 0 DENSIFY depends on no input of the model: it is computed at compile time, and no layout and no tuning "
        "changes that"
    )


def variable(model) -> None:
    operand(model, 0, 0).isVariable = True


@pytest.mark.parametrize(
    ("change", "index", "message"),
    [
        (op_type(1, "WHILE"), 1, "op 1 WHILE runs another subgraph of the model, and cannot be cut out of it"),
        (variable, 0, "op 0 FULLY_CONNECTED keeps a state between inferences, and cannot be measured alone"),
        (variable, 4, "there is no op 4: the model has 4 operators, 0 to 3"),
        (variable, -1, "there is no op -1: the model has 4 operators, 0 to 3"),
    ],
)
def test_what_cannot_be_cut_out_is_said(change, index, message):
    with pytest.raises(ModelError) as error:
        cut(edited(TINY / "tiny_dense.tflite", change), [index])
    assert str(error.value) == message


def test_a_cut_that_computes_something_else_is_refused():
    data = content("tiny_conv")

    def other_weights(model) -> None:
        buffer = model.buffers[operand(model, 1, 1).buffer]
        buffer.data = np.zeros_like(buffer.data)

    made = cut(data, [1])
    changed = cut(edited(TINY / "tiny_conv.tflite", other_weights), [1])
    wrong = Cut(data=changed.data, ops=made.ops, inputs=made.inputs, outputs=made.outputs)
    with pytest.raises(ModelError) as error:
        cut_values(data, wrong, seeded(data))
    assert str(error.value) == (
        "ops 1 alone do not compute what they compute in the model: output 0 of input set 0 differs. Measure them "
        "within the model"
    )
