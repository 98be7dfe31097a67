"""What a .tflite file says about itself: its inputs, its outputs and its operators.

Read with the `tflite` package, the same schema TVM's importer reads with. Its accessors check nothing:
on a damaged file they raise whatever the bytes lead to. All of that becomes ModelError here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

from layoutlab.errors import ModelError, printable
from layoutlab.model.references import require_sound

STAGE = "parsing the TFLite flatbuffer"
DYNAMIC = -1


@dataclass(frozen=True)
class TensorInfo:
    """A tensor's name, its shape with -1 for every dynamic dimension, and its dtype as numpy names it."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def is_dynamic(self) -> bool:
        """Whether some dimension is known only once the model runs."""
        return DYNAMIC in self.shape


@dataclass(frozen=True)
class Op:
    """The operator at `index` in execution order.

    `type` is the schema's name, such as CONV_2D, or CUSTOM:<code>. `output_shape` is the shape of the
    first output, or None if the operator has no output.
    """

    index: int
    type: str
    output_shape: tuple[int, ...] | None


@dataclass(frozen=True)
class ModelDescription:
    """The model's first subgraph, which is the one that TFLite runs."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    ops: tuple[Op, ...]

    def op_counts(self) -> dict[str, int]:
        """How many operators there are of each type, most frequent first, then by name."""
        counts = Counter(op.type for op in self.ops)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def describe(data: bytes) -> ModelDescription:
    """Describe the .tflite file whose content is `data`.

    Raises ModelError, naming the stage and the cause, for bytes that are no well-formed TFLite model.
    """
    import tflite

    try:
        return _describe(tflite.Model.GetRootAs(data, 0))
    except Exception as error:
        raise ModelError(f"{STAGE}: the file is malformed ({type(error).__name__}: {error})") from error


def _describe(model: Any) -> ModelDescription:
    if model.SubgraphsLength() == 0:
        raise ValueError("it has no subgraph")
    require_sound(model)
    graph = model.Subgraphs(0)
    return ModelDescription(
        inputs=tuple(_tensor(graph, graph.Inputs(i)) for i in range(graph.InputsLength())),
        outputs=tuple(_tensor(graph, graph.Outputs(i)) for i in range(graph.OutputsLength())),
        ops=tuple(_op(model, graph, i) for i in range(graph.OperatorsLength())),
    )


def shown_name(name: bytes | None) -> str:
    """A name from the file for people to read: a file may hold any bytes, and some of them steer terminals."""
    return printable((name or b"").decode(errors="replace"))


def _tensor(graph: Any, index: int) -> TensorInfo:
    # The accessors would read past the end, or before the start, of the list of tensors.
    if not 0 <= index < graph.TensorsLength():
        raise ValueError(f"it refers to tensor {index} of {graph.TensorsLength()}")
    tensor = graph.Tensors(index)
    name = shown_name(tensor.Name())
    return TensorInfo(name, _shape(tensor), _dtype(tensor.Type()))


def _shape(tensor: Any) -> tuple[int, ...]:
    """The signature if there is one: `shape` holds 1 where the signature says a dimension is dynamic."""
    if tensor.ShapeSignatureLength():
        return tuple(int(tensor.ShapeSignature(i)) for i in range(tensor.ShapeSignatureLength()))
    return tuple(int(tensor.Shape(i)) for i in range(tensor.ShapeLength()))


def _op(model: Any, graph: Any, index: int) -> Op:
    operator = graph.Operators(index)
    shape = _tensor(graph, operator.Outputs(0)).shape if operator.OutputsLength() else None
    return Op(index, _op_type(model.OperatorCodes(operator.OpcodeIndex())), shape)


def _op_type(code: Any) -> str:
    # Codes below 127 are in the older one-byte field; a file holds the larger of the two.
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    name = _names("BuiltinOperator").get(number)
    if name is None:
        raise ValueError(f"builtin operator {number} is not in the schema")
    if name != "CUSTOM":
        return name
    return f"CUSTOM:{shown_name(code.CustomCode())}"


def _dtype(number: int) -> str:
    name = _names("TensorType").get(number)
    if name is None:
        raise ValueError(f"tensor type {number} is not in the schema")
    return name.lower()


@cache
def _names(enumeration: str) -> dict[int, str]:
    """The schema's names of an enumeration, by number."""
    import tflite

    return {number: name for name, number in vars(getattr(tflite, enumeration)).items() if name.isupper()}
