"""What refers to what in a .tflite file, checked: the schema's accessors read whatever lies at an index.

Every tensor's buffer, every operator's code, inputs and outputs have to be there, and an operator can only read what
one before it has computed: TFLite runs them in the order of the file.
"""

from __future__ import annotations

from typing import Any

# An optional input that is left out.
_NONE = -1


def require_sound(model: Any) -> None:
    """Raise ValueError, which says what is wrong, for the first reference that cannot be followed.

    `model` is the schema's Model; its accessors raise errors of their own where offsets lead out of the file.
    """
    for number in range(model.SubgraphsLength()):
        where = "" if number == 0 else f" of subgraph {number}"
        graph = model.Subgraphs(number)
        _check_tensors(graph, model.BuffersLength(), where)
        _check_operators(model, graph, where)


def _check_tensors(graph: Any, buffers: int, where: str) -> None:
    for index in range(graph.TensorsLength()):
        tensor = graph.Tensors(index)
        if tensor.Buffer() >= max(buffers, 1):  # 0 stands for none
            raise ValueError(f"tensor {index}{where} refers to buffer {tensor.Buffer()} of {buffers}")
        for axis in range(tensor.ShapeLength()):
            if tensor.Shape(axis) < -1:
                raise ValueError(f"tensor {index}{where} has {tensor.Shape(axis)} as dimension {axis}")


def _check_operators(model: Any, graph: Any, where: str) -> None:
    writers = _writers(graph, where)
    tensors = graph.TensorsLength()
    for index in range(graph.OperatorsLength()):
        op = graph.Operators(index)
        if op.OpcodeIndex() >= model.OperatorCodesLength():
            raise ValueError(
                f"operator {index}{where} refers to code {op.OpcodeIndex()} of {model.OperatorCodesLength()}"
            )
        for tensor in map(op.Inputs, range(op.InputsLength())):
            if tensor == _NONE:
                continue
            _require_tensor(tensor, tensors, f"operator {index}{where}")
            if writers.get(tensor, -1) >= index and not graph.Tensors(tensor).IsVariable():
                raise ValueError(
                    f"operator {index}{where} reads tensor {tensor}, which operator {writers[tensor]} computes: "
                    "operators have to stand in the order in which they run"
                )


def _writers(graph: Any, where: str) -> dict[int, int]:
    """The operator that computes each tensor."""
    writers = {}
    for index in range(graph.OperatorsLength()):
        op = graph.Operators(index)
        for tensor in map(op.Outputs, range(op.OutputsLength())):
            _require_tensor(tensor, graph.TensorsLength(), f"operator {index}{where}")
            writers[tensor] = index
    return writers


def _require_tensor(tensor: int, tensors: int, reader: str) -> None:
    if not 0 <= tensor < tensors:
        raise ValueError(f"{reader} refers to tensor {tensor} of {tensors}")
