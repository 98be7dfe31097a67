"""Models made for a test by editing a committed one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema


def edited(path: Path, *changes: Callable[[Any], None]) -> bytes:
    """The .tflite file at `path` with every change made to it, each a function of the schema's ModelT."""
    model = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
    for change in changes:
        change(model)
    builder = flatbuffers.Builder()
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def op_type(index: int, name: str, custom: str | None = None) -> Callable[[Any], None]:
    """Make operator `index` one of TFLite's type `name`, its options gone; `custom` is the code of a CUSTOM one."""

    def change(model: Any) -> None:
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.customCode = custom
        model.operatorCodes.append(code)
        op = model.subgraphs[0].operators[index]
        op.opcodeIndex = len(model.operatorCodes) - 1
        op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.NONE, None

    return change


def operand(model: Any, index: int, position: int, output: bool = False) -> Any:
    """The TensorT that is input (or output) `position` of operator `index`."""
    graph = model.subgraphs[0]
    op = graph.operators[index]
    return graph.tensors[(op.outputs if output else op.inputs)[position]]


def quantised(index: int, position: int, output: bool = False, dtype: str = "INT8") -> Callable[[Any], None]:
    """Make a tensor one of `dtype` with scale 0.5 and zero point 0; its data, if it has any, becomes zeros."""

    def change(model: Any) -> None:
        tensor = operand(model, index, position, output)
        tensor.type = getattr(schema.TensorType, dtype)
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = [0.5], [0]
        data = model.buffers[tensor.buffer].data
        if data is not None:
            model.buffers[tensor.buffer].data = bytes(len(data) // 4)

    return change


def sparse(index: int, position: int) -> Callable[[Any], None]:
    """Mark a weight of rank 2 as stored sparse (CSR), with 0.5 as its first value and zeros elsewhere."""

    def change(model: Any) -> None:
        tensor = operand(model, index, position)
        rows = int(tensor.shape[0])
        first, second = schema.DimensionMetadataT(), schema.DimensionMetadataT()
        first.format, first.denseSize = schema.DimensionType.DENSE, rows
        second.format = schema.DimensionType.SPARSE_CSR
        second.arraySegmentsType = second.arrayIndicesType = schema.SparseIndexVector.Int32Vector
        second.arraySegments, second.arrayIndices = schema.Int32VectorT(), schema.Int32VectorT()
        second.arraySegments.values, second.arrayIndices.values = [0] + [1] * rows, [0]
        tensor.sparsity = schema.SparsityParametersT()
        tensor.sparsity.traversalOrder, tensor.sparsity.dimMetadata = [0, 1], [first, second]
        model.buffers[tensor.buffer].data = np.array([0.5], np.float32).tobytes()

    return change


def densified(index: int, position: int) -> Callable[[Any], None]:
    """Put a DENSIFY before operator `index`, which makes its sparse input dense; all indices move up by one."""

    def change(model: Any) -> None:
        graph = model.subgraphs[0]
        dense = copy.deepcopy(operand(model, index, position))
        dense.name, dense.sparsity, dense.buffer = b"densified", None, 0
        graph.tensors.append(dense)
        op, reader = schema.OperatorT(), graph.operators[index]
        op.inputs, op.outputs = [reader.inputs[position]], [len(graph.tensors) - 1]
        reader.inputs = [*reader.inputs[:position], len(graph.tensors) - 1, *reader.inputs[position + 1 :]]
        graph.operators.insert(index, op)
        op_type(index, "DENSIFY")(model)

    return change


def dynamic_batch(model: Any) -> None:
    """Let the first dimension of the first input be known only at run time."""
    graph = model.subgraphs[0]
    tensor = graph.tensors[graph.inputs[0]]
    tensor.shapeSignature = [-1, *tensor.shape[1:]]


def input_dtype(dtype: str) -> Callable[[Any], None]:
    """Give the first input another dtype."""

    def change(model: Any) -> None:
        graph = model.subgraphs[0]
        graph.tensors[graph.inputs[0]].type = getattr(schema.TensorType, dtype)

    return change
