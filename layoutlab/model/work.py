"""How much each operator of a .tflite file computes and moves, told from the shapes of its tensors.

Floating-point operations: a multiply-add is two, in convolutions, dense layers and matrix products; a bias one for
each output; a pooling one for each element of each window, a reduction one for each input; softmax five for each
element (maximum, difference, exponential, sum, quotient); what only moves data none; everything else one for each
output. Activations fused by the converter are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from layoutlab.engine.provenance import Operator
from layoutlab.model.describe import describe, shown_name

Shape = tuple[int, ...]

_MOVES = frozenset(
    """BATCH_TO_SPACE_ND BROADCAST_TO CONCATENATION DEPTH_TO_SPACE EXPAND_DIMS FILL GATHER GATHER_ND MIRROR_PAD PACK PAD
    PADV2 RESHAPE REVERSE_V2 SHAPE SLICE SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SPLIT_V SQUEEZE STRIDED_SLICE TILE
    TRANSPOSE UNPACK""".split()  # noqa: SIM905 - one name a word reads better than a page of quotes
)
_REDUCTIONS = frozenset({"MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "ARG_MAX", "ARG_MIN"})
_POOLS = frozenset({"AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"})
# What moves a window, and the table of the schema that has its stride.
_OPTIONS = {
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "TRANSPOSE_CONV": "TransposeConvOptions",
    **dict.fromkeys(_POOLS, "Pool2DOptions"),
}
_SOFTMAX = frozenset({"SOFTMAX", "LOG_SOFTMAX"})

# From the shapes of inputs and of the output: multiply-adds of one inference.
_MULTIPLY_ADDS: dict[str, Callable[[list[Shape], Shape], int]] = {
    "CONV_2D": lambda inputs, output: math.prod(output) * math.prod(inputs[1][1:]),
    "DEPTHWISE_CONV_2D": lambda inputs, output: math.prod(output) * math.prod(inputs[1][1:3]),
    "FULLY_CONNECTED": lambda inputs, output: math.prod(output) * inputs[1][-1],
    "TRANSPOSE_CONV": lambda inputs, output: math.prod(inputs[2]) * math.prod(inputs[1][:3]),
    "BATCH_MATMUL": lambda inputs, output: math.prod(output) * inputs[0][-1],
}
_BIASES = {"CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "FULLY_CONNECTED": 2, "TRANSPOSE_CONV": 3}


def operators(data: bytes) -> tuple[Operator, ...]:
    """The operators of a .tflite file, in execution order, with the work that each does.

    `bytes` are those of its inputs, weights included, and of its outputs, each tensor once. Raises ModelError for bytes
    that are no well-formed TFLite model.
    """
    described = describe(data).ops
    import tflite

    graph = tflite.Model.GetRootAs(data, 0).Subgraphs(0)
    return tuple(_operator(graph, op.index, op.type) for op in described)


def _operator(graph: Any, index: int, type_: str) -> Operator:
    op = graph.Operators(index)
    # An input that is left out has the number -1.
    inputs = [graph.Tensors(op.Inputs(i)) if op.Inputs(i) >= 0 else None for i in range(op.InputsLength())]
    outputs = [graph.Tensors(op.Outputs(i)) for i in range(op.OutputsLength())]
    shapes = [() if tensor is None else _shape(tensor) for tensor in inputs]
    results = [_shape(tensor) for tensor in outputs]
    return Operator(
        index=index,
        type=type_,
        output=shown_name(outputs[0].Name()) if outputs else "",
        shape=results[0] if results else (),
        flop=_flop(op, type_, shapes, results),
        bytes=sum(_bytes(tensor) for tensor in (*inputs, *outputs) if tensor is not None),
        window=_window(op, type_, shapes),
    )


def _flop(op: Any, type_: str, inputs: list[Shape], outputs: list[Shape]) -> int:
    elements = sum(math.prod(shape) for shape in outputs)
    if not outputs or type_ in _MOVES:
        return 0
    if type_ in _MULTIPLY_ADDS:
        bias = len(inputs) > _BIASES.get(type_, len(inputs)) and bool(inputs[_BIASES[type_]])
        return 2 * _MULTIPLY_ADDS[type_](inputs, outputs[0]) + (elements if bias else 0)
    if type_ in _POOLS:
        return elements * math.prod(_kernel(op, type_, inputs))
    if type_ in _REDUCTIONS:
        return math.prod(inputs[0])
    return elements * (5 if type_ in _SOFTMAX else 1)


def _window(op: Any, type_: str, inputs: list[Shape]) -> str | None:
    """Kernel and stride, in rows x columns."""
    if type_ not in _OPTIONS:
        return None
    options = _options(op, type_)
    strides = int(options.StrideH()), int(options.StrideW())
    stride = "" if strides == (1, 1) else f"/{strides[0]}" if len(set(strides)) == 1 else f"/{strides[0]}x{strides[1]}"
    return "x".join(map(str, _kernel(op, type_, inputs))) + stride


def _kernel(op: Any, type_: str, inputs: list[Shape]) -> tuple[int, int]:
    if type_ in _POOLS:
        options = _options(op, type_)
        return int(options.FilterHeight()), int(options.FilterWidth())
    return inputs[1][1], inputs[1][2]


def _options(op: Any, type_: str) -> Any:
    import tflite

    table, options = op.BuiltinOptions(), getattr(tflite, _OPTIONS[type_])()
    options.Init(table.Bytes, table.Pos)
    return options


def _shape(tensor: Any) -> Shape:
    return tuple(int(tensor.Shape(i)) for i in range(tensor.ShapeLength()))


def _bytes(tensor: Any) -> int:
    names = {number: name for name, number in vars(_tensor_type()).items() if name.isupper()}
    try:
        size = np.dtype(names[tensor.Type()].lower().replace("bool", "bool_")).itemsize
    except (KeyError, TypeError):  # strings, resources, halves of bytes: no array of the graph's arithmetic
        size = 1
    return math.prod(_shape(tensor)) * size


def _tensor_type() -> Any:
    import tflite

    return tflite.TensorType
