"""Damaged .tflite files: cut short, with bits flipped, or whole flatbuffers that say impossible things."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from ..tflite_files import edited, op_type, operand

# Metadata lies at both ends of a file, weights between them: half of the flips are aimed at so many bytes of an end.
_END_BYTES = 6000


def truncated(data: bytes, step: int = 1024) -> Iterator[bytes]:
    """The file cut at every `step` bytes, first to 0."""
    return (data[:length] for length in range(0, len(data), step))


def flipped(data: bytes, seed: int) -> bytes:
    """The file with one bit flipped, half of the time near one of its ends."""
    draw = random.Random(seed)
    places = len(data)
    if draw.random() < 0.5:
        places = min(places, _END_BYTES)
    place = draw.randrange(places)
    if draw.random() < 0.5:
        place = len(data) - 1 - place
    changed = bytearray(data)
    changed[place] ^= 1 << draw.randrange(8)
    return bytes(changed)


Change = Callable[[Any], None]


def _shape(extents: list[int], index: int = 0, position: int = 0, output: bool = False) -> Change:
    def change(model: Any) -> None:
        tensor = operand(model, index, position, output)
        tensor.shape, tensor.shapeSignature = extents, None

    return change


def _operand_index(index: int, position: int, tensor: int, output: bool = False) -> Change:
    def change(model: Any) -> None:
        op = model.subgraphs[0].operators[index]
        name = "outputs" if output else "inputs"
        changed = list(getattr(op, name))
        changed[position] = tensor
        setattr(op, name, changed)

    return change


def _reads_own_output(model: Any) -> None:
    op = model.subgraphs[0].operators[0]
    op.inputs = [op.outputs[0], *op.inputs[1:]]


def _backwards(model: Any) -> None:
    model.subgraphs[0].operators.reverse()


def _buffer(number: int) -> Change:
    def change(model: Any) -> None:
        operand(model, 0, 1).buffer = number

    return change


def _opcode(number: int) -> Change:
    def change(model: Any) -> None:
        model.subgraphs[0].operators[0].opcodeIndex = number

    return change


def _while_of_itself(model: Any) -> None:
    """The only subgraph is the condition and the body of a loop in it."""
    op_type(0, "WHILE")(model)
    op = model.subgraphs[0].operators[0]
    op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.WhileOptions, schema.WhileOptionsT()
    op.inputs = op.inputs[:1]


def _no_subgraph(model: Any) -> None:
    model.subgraphs = []


def _no_operator(model: Any) -> None:
    model.subgraphs[0].operators = []


def _huge_kernel(model: Any) -> None:
    tensor = operand(model, 0, 1)
    tensor.shape = [1 << 20, 3, 3, 8]


def _input_of_text(model: Any) -> None:
    operand(model, 0, 0).type = schema.TensorType.STRING


def _huge_reshape(model: Any) -> None:
    operand(model, 0, 0, output=True).shape = [1, 1 << 15, 1 << 15, 64]


IMPOSSIBLE: dict[str, Change] = {
    "an input of 120 GB": _shape([1, 100_000, 100_000, 3]),
    "an input that overflows": _shape([2**31 - 1, 2**31 - 1, 2**31 - 1, 2**31 - 1]),
    "a negative input": _shape([1, -7, 16, 8]),
    "an empty input": _shape([1, 0, 16, 8]),
    "an input of text": _input_of_text,
    "a huge kernel": _huge_kernel,
    "a huge output": _huge_reshape,
    "input index out of range": _operand_index(0, 0, 1_000_000),
    "input index below range": _operand_index(0, 0, -7),
    "output index out of range": _operand_index(0, 0, 1_000_000, output=True),
    "an operator that reads its own output": _reads_own_output,
    "operators in reverse order": _backwards,
    "buffer out of range": _buffer(1_000_000),
    "operator code out of range": _opcode(1000),
    "a loop that calls itself": _while_of_itself,
    "no subgraph": _no_subgraph,
    "no operator": _no_operator,
}


def impossible(path: Path, name: str) -> bytes:
    """The model at `path`, which begins with a convolution, with one thing of IMPOSSIBLE."""
    return edited(path, IMPOSSIBLE[name])
