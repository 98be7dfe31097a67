"""What each tiny net is there for must survive the converter, which rewrites what it can."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite
from ai_edge_litert.interpreter import Interpreter

from layoutlab.model.weights import smooth_input

SAME, VALID = tflite.Padding.SAME, tflite.Padding.VALID


@dataclass(frozen=True)
class Node:
    """An operator with the shapes of its tensors; an input that is a constant also has its value."""

    inputs: list[tuple[int, ...]]
    values: list[np.ndarray | None]
    output: tuple[int, ...]
    output_index: int
    options: Any


class Net:
    def __init__(self, path: Path) -> None:
        self.model = tflite.Model.GetRootAs(path.read_bytes(), 0)
        self.graph = self.model.Subgraphs(0)

    def nodes(self, op: str, options: Any = None) -> list[Node]:
        """The operators of type `op` in order, with their options read as the schema's class `options`."""
        number = getattr(tflite.BuiltinOperator, op)
        operators = [self.graph.Operators(i) for i in range(self.graph.OperatorsLength())]
        return [
            self._node(operator, options)
            for operator in operators
            if self.model.OperatorCodes(operator.OpcodeIndex()).BuiltinCode() == number
        ]

    def tensors(self) -> list[Any]:
        return [self.graph.Tensors(i) for i in range(self.graph.TensorsLength())]

    def _node(self, operator: Any, options: Any) -> Node:
        inputs = [self.graph.Tensors(operator.Inputs(i)) for i in range(operator.InputsLength())]
        read = None
        if options is not None:
            read = options()
            read.Init(operator.BuiltinOptions().Bytes, operator.BuiltinOptions().Pos)
        output = self.graph.Tensors(operator.Outputs(0))
        return Node(
            [shape(x) for x in inputs], [self._value(x) for x in inputs], shape(output), operator.Outputs(0), read
        )

    def _value(self, tensor: Any) -> np.ndarray | None:
        buffer = self.model.Buffers(tensor.Buffer())
        if buffer.DataLength() == 0:
            return None
        dtype = {tflite.TensorType.FLOAT32: "<f4", tflite.TensorType.INT32: "<i4"}[tensor.Type()]
        return buffer.DataAsNumpy().view(dtype).reshape(shape(tensor))


def shape(tensor: Any) -> tuple[int, ...]:
    return tuple(tensor.Shape(i) for i in range(tensor.ShapeLength()))


@pytest.fixture
def net(models: Path, request: pytest.FixtureRequest) -> Net:
    return Net(models / "tiny" / f"{request.param}.tflite")


@pytest.mark.parametrize("net", ["tiny_se"], indirect=True)
def test_squeeze_and_excite(net: Net) -> None:
    convs = net.nodes("CONV_2D", tflite.Conv2DOptions)
    squeezed = [conv.output for conv in convs if conv.options.FusedActivationFunction() == 1]
    assert squeezed == [(1, 1, 1, 10), (1, 1, 1, 6)]
    gates = [conv.output for conv in convs if conv.options.FusedActivationFunction() == 3]
    assert gates == [(1, 1, 1, 40), (1, 1, 1, 72)]
    (stride2, stride1) = net.nodes("DEPTHWISE_CONV_2D", tflite.DepthwiseConv2DOptions)
    assert (stride2.inputs[1], stride1.inputs[1]) == ((1, 5, 5, 40), (1, 5, 5, 72))
    assert (stride2.options.StrideH(), stride1.options.StrideH()) == (2, 1)


@pytest.mark.filterwarnings("ignore:.*experimental_preserve_all_tensors.*")
def test_gates_are_closed_open_and_between(models: Path) -> None:
    path = models / "tiny" / "tiny_se.tflite"
    gates = [node.output_index for node in Net(path).nodes("MUL") if node.output[1:3] == (1, 1)]
    assert len(gates) == 2
    interpreter = Interpreter(str(path), num_threads=1, experimental_preserve_all_tensors=True)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], smooth_input((1, 32, 32, 3), 0))
    interpreter.invoke()
    for gate in map(interpreter.get_tensor, gates):
        assert gate.min() == 0.0 and gate.max() == pytest.approx(1.0)
        assert ((gate > 0.1) & (gate < 0.9)).mean() > 0.5


@pytest.mark.parametrize("net", ["tiny_resnet"], indirect=True)
def test_explicit_padding_and_shortcuts(net: Net) -> None:
    assert [pad.values[1].tolist() for pad in net.nodes("PAD")] == [
        [[0, 0], [3, 3], [3, 3], [0, 0]],
        [[0, 0], [1, 1], [1, 1], [0, 0]],
    ]
    (pool,) = net.nodes("MAX_POOL_2D", tflite.Pool2DOptions)
    assert (pool.options.FilterHeight(), pool.options.StrideH(), pool.options.Padding()) == (3, 2, VALID)
    convs = net.nodes("CONV_2D", tflite.Conv2DOptions)
    assert (convs[0].inputs[1], convs[0].options.StrideH(), convs[0].options.Padding()) == ((16, 7, 7, 3), 2, VALID)
    strided = [conv.inputs[1] for conv in convs[1:] if conv.options.StrideH() == 2]
    assert sorted(strided) == [(12, 1, 1, 16), (48, 1, 1, 16)]
    assert [add.output for add in net.nodes("ADD")] == [(1, 4, 4, 48)] * 2
    assert [mean.output for mean in net.nodes("MEAN")] == [(1, 48)]


@pytest.mark.parametrize("net", ["tiny_inception"], indirect=True)
def test_branches_and_poolings(net: Net) -> None:
    first, second = net.nodes("CONCATENATION", tflite.ConcatenationOptions)
    assert [branch[-1] for branch in first.inputs] == [10, 16, 24, 8]
    assert (first.output, second.output) == ((1, 13, 17, 58), (1, 6, 8, 78))
    assert first.options.Axis() == second.options.Axis() == -1  # the channels, counted from the end
    filters = [conv.inputs[1][1:3] for conv in net.nodes("CONV_2D")]
    assert {(1, 7), (7, 1), (3, 3), (1, 1)} == set(filters)
    (average,) = net.nodes("AVERAGE_POOL_2D", tflite.Pool2DOptions)
    assert (average.options.Padding(), average.options.StrideH(), average.options.FilterWidth()) == (SAME, 1, 3)
    (largest,) = net.nodes("MAX_POOL_2D", tflite.Pool2DOptions)
    assert (largest.options.Padding(), largest.options.StrideH(), largest.options.FilterWidth()) == (VALID, 2, 3)


@pytest.mark.parametrize("net", ["tiny_groups"], indirect=True)
def test_groups_multiplier_and_dilation(net: Net) -> None:
    stem, grouped, _ = net.nodes("CONV_2D")
    assert stem.inputs[1] == (16, 3, 3, 1)
    assert (grouped.inputs[0][-1], grouped.inputs[1]) == (16, (32, 3, 3, 4))
    multiplied, dilated = net.nodes("DEPTHWISE_CONV_2D", tflite.DepthwiseConv2DOptions)
    assert (multiplied.inputs[0][-1], multiplied.output[-1], multiplied.options.DepthMultiplier()) == (32, 64, 2)
    assert (dilated.options.DilationHFactor(), dilated.options.DilationWFactor()) == (2, 2)
    assert (multiplied.options.DilationHFactor(), dilated.options.DepthMultiplier()) == (1, 1)


@pytest.mark.parametrize("net", ["tiny_resize"], indirect=True)
def test_resizing_skip_and_prelu(net: Net) -> None:
    (bilinear,) = net.nodes("RESIZE_BILINEAR", tflite.ResizeBilinearOptions)
    assert (bilinear.inputs[0], bilinear.output) == ((1, 4, 6, 24), (1, 8, 12, 24))
    assert bilinear.options.HalfPixelCenters() and not bilinear.options.AlignCorners()
    (nearest,) = net.nodes("RESIZE_NEAREST_NEIGHBOR", tflite.ResizeNearestNeighborOptions)
    assert (nearest.inputs[0], nearest.output) == ((1, 8, 12, 16), (1, 16, 24, 16))
    assert nearest.options.HalfPixelCenters() and not nearest.options.AlignCorners()
    (join,) = net.nodes("CONCATENATION")
    assert (join.inputs, join.output) == ([(1, 8, 12, 24), (1, 8, 12, 16)], (1, 8, 12, 40))
    for prelu in net.nodes("PRELU"):
        assert prelu.inputs[1] == (1, 1, prelu.output[-1])
        assert len(np.unique(prelu.values[1])) == prelu.output[-1]


@pytest.mark.parametrize("net", ["tiny_int8"], indirect=True)
def test_everything_is_quantised(net: Net) -> None:
    types = {tensor.Type() for tensor in net.tensors()}
    assert types == {tflite.TensorType.INT8, tflite.TensorType.INT32}  # biases and shapes are int32
    scales = {tensor.Quantization().ScaleLength() for tensor in net.tensors() if len(shape(tensor)) == 4}
    assert scales == {1, 16, 24, 32, 48, 64}  # of activations, and of every channel of a filter
