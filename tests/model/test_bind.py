"""A dynamic batch, bound: TFLite computes the same as when it resizes the input itself."""

from __future__ import annotations

import numpy as np
import pytest

from layoutlab.errors import ModelError
from layoutlab.model.bind import bind_batch
from layoutlab.model.describe import describe


@pytest.mark.parametrize("batch", [1, 3])
def test_the_bound_model_is_the_resized_one(models, batch):
    from ai_edge_litert.interpreter import Interpreter

    data = (models / "tiny" / "tiny_dynamic.tflite").read_bytes()
    bound = bind_batch(data, batch)
    assert len(bound) == len(data)
    found = describe(bound)
    assert [tensor.shape[0] for tensor in (*found.inputs, *found.outputs)] == [batch, batch]
    assert not any(tensor.is_dynamic for tensor in (*found.inputs, *found.outputs))

    value = np.random.default_rng(1).uniform(-1, 1, (batch, 16, 16, 8)).astype("float32")
    outputs = []
    for content, resize in ((bound, False), (data, True)):
        interpreter = Interpreter(model_content=content)
        index = interpreter.get_input_details()[0]["index"]
        if resize:
            interpreter.resize_tensor_input(index, value.shape)
        interpreter.allocate_tensors()
        interpreter.set_tensor(index, value)
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
    np.testing.assert_array_equal(*outputs)


def test_a_fixed_batch_is_not_bound_again(models):
    with pytest.raises(ModelError) as caught:
        bind_batch((models / "tiny" / "tiny_conv.tflite").read_bytes(), 1)
    assert str(caught.value) == ("the spec says model.batch: 1, but the model's batch is not dynamic; leave it out")


def test_a_malformed_file(models):
    with pytest.raises(ModelError, match="binding the batch: the file is malformed"):
        bind_batch((models / "tiny" / "tiny_conv.tflite").read_bytes()[:200], 1)
