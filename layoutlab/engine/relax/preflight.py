"""Everything in a model that TVM's importer would refuse, found in one walk.

TVM stops at the first operator whose converter fails. The walk here uses TVM's own converters, one operator at a
time: what fails is written down, its outputs become zeros of the shape and dtype the file declares, and the walk goes
on. A model without problems was therefore imported, operator by operator, just as `from_tflite` does it.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from functools import partial
from typing import Any

import tflite
import tvm
from tvm import relax
from tvm.relax.frontend.tflite import from_tflite
from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter, get_tensor_name

from layoutlab.engine.preflight import Preflight, Problem
from layoutlab.errors import ModelError
from layoutlab.model.describe import STAGE, TensorInfo, describe

# The dtypes an input can have in Relax, by the schema's names.
_INPUT_DTYPES = frozenset(
    "float32 float16 int8 int16 int32 int64 uint8 uint32 uint64 bool complex64".split()  # complex as pairs of floats
)

_SPARSE = (
    "its weights are stored sparse, and TVM's importer reads dense weights only; convert the model without sparsity, "
    "or densify its weights before converting"
)
_DYNAMIC_RANGE = (
    "its weights are quantised but its data is not (dynamic-range quantisation), which TVM's importer does not read; "
    "convert the model in float, or with full integer quantisation"
)
_FLEX = "it is TensorFlow's own operator; convert the model with TFLite's builtin operators only (no SELECT_TF_OPS)"
_CUSTOM = "TVM's importer knows no custom operator of this name; build the model without it"

_NO_STATE = "make the model's variables constants before converting (freeze it)"
_NO_CONTROL_FLOW = "convert the model without control flow"
# What to do about an operator whose converter refuses it, where the operator's type says so.
_ADVICE = {
    "VAR_HANDLE": _NO_STATE,
    "READ_VARIABLE": _NO_STATE,
    "ASSIGN_VARIABLE": _NO_STATE,
    "CALL_ONCE": _NO_STATE,
    "IF": _NO_CONTROL_FLOW,
    "WHILE": _NO_CONTROL_FLOW,
    "CALL": _NO_CONTROL_FLOW,
    "STABLEHLO_WHILE": _NO_CONTROL_FLOW,
}


def preflight(data: bytes) -> Preflight:
    """Inputs, outputs, operators and all import problems of the .tflite file whose content is `data`.

    Raises ModelError for bytes that are no well-formed TFLite model.
    """
    description = describe(data)
    _require_whole_buffers(data)
    problems = [*_input_problems(description.inputs), *_walk(_with_known_inputs(data, description.inputs))]
    return Preflight(
        inputs=description.inputs,
        outputs=description.outputs,
        op_counts=description.op_counts(),
        problems=tuple(problems),
    )


def one_line(error: Exception) -> str:
    """The error's class and message on one line; without a message, the source line that raised it."""
    message = " ".join(str(error).split())
    if not message:
        frames = traceback.extract_tb(error.__traceback__)
        message = f"no message, raised by `{frames[-1].line}`" if frames else "no message"
    return f"{type(error).__name__}: {message}"


def _require_whole_buffers(data: bytes) -> None:
    """Raise ModelError when the data of some tensor lies outside of the file, as in one cut short."""
    model = tflite.Model.GetRootAs(data, 0)
    try:
        for number in range(model.BuffersLength()):
            model.Buffers(number).DataAsNumpy()
    except Exception as error:
        raise ModelError(f"{STAGE}: the file is malformed ({type(error).__name__}: {error})") from error


def _input_problems(inputs: Sequence[TensorInfo]) -> list[Problem]:
    problems = []
    for tensor in inputs:
        if tensor.dtype not in _INPUT_DTYPES:
            reason = f"its dtype is {tensor.dtype}, which Relax has no inputs of; convert the model with a numeric input"
            problems.append(Problem(input=tensor.name, reason=reason))
        if tensor.is_dynamic:
            reason = (
                f"its shape {list(tensor.shape)} is dynamic; convert the model with every dimension bound (batch 1), "
                "since layouts are chosen for fixed shapes"
            )
            problems.append(Problem(input=tensor.name, reason=reason))
    return problems


def _with_known_inputs(data: bytes, inputs: Sequence[TensorInfo]) -> bytes:
    """The file with float32 in place of input dtypes that would end the import before its first operator."""
    graph = tflite.Model.GetRootAs(data, 0).Subgraphs(0)
    patched = bytearray(data)
    for position, tensor in enumerate(inputs):
        if tensor.dtype not in _INPUT_DTYPES:
            patched[_place_of_type(graph.Tensors(graph.Inputs(position)))] = tflite.TensorType.FLOAT32
    return bytes(patched)


def _place_of_type(tensor: Any) -> int:
    """Where the file holds the one byte of the tensor's type: the second field of the schema's Tensor.

    It is there whenever the type is not float32, the default.
    """
    vtable_entry_of_type = 6
    return int(tensor._tab.Pos + tensor._tab.Offset(vtable_entry_of_type))


def _walk(data: bytes) -> list[Problem]:
    """Import the model, going on after each operator that cannot be; returns the problems."""
    problems: list[Problem] = []
    converter = partial(_CollectingConverter, problems=problems)
    try:
        from_tflite(tflite.Model.GetRootAs(data, 0), op_converter=converter)
    except Exception as error:
        # What fails after some operator did is a consequence of it, and would only distract.
        if not problems:
            problems.append(Problem(reason=f"TVM's importer fails with {one_line(error)}"))
    return problems


class _CollectingConverter(OperatorConverter):  # type: ignore[misc]  # TVM has no types
    """Converts what can be converted, and writes down the rest in `problems`, which all subgraphs share."""

    def __init__(
        self,
        model: Any,
        subgraph: Any,
        exp_tab: Any,
        ctx: relax.BlockBuilder,
        conversion_state: dict[str, Any] | None = None,
        problems: list[Problem] | None = None,
    ) -> None:
        super().__init__(model, subgraph, exp_tab, ctx, conversion_state)
        # TVM makes the converters of nested subgraphs itself, and hands on nothing but this state.
        self._problems: list[Problem] = self.conversion_state.setdefault("problems", problems)
        # Output tensor -> index of the operator it could not be got from.
        self._placeholders: dict[int, int] = {}

    def check_unsupported_ops(self) -> None:
        """Nothing: each operator is checked when its turn comes, so that all of them have one."""

    def convert_op_to_relax(self) -> None:
        """Convert each operator by itself."""
        subgraph = self.subgraph
        for index in range(subgraph.OperatorsLength()):
            self.subgraph = _OneOperator(subgraph, index)
            try:
                self._convert_one(subgraph.Operators(index), index)
            finally:
                self.subgraph = subgraph

    def _convert_one(self, op: Any, index: int) -> None:
        type_ = self._type(op)
        try:
            super().check_unsupported_ops()
        except Exception as error:
            self._note(op, index, type_, self._reason_to_refuse(op, type_, error))
            return
        try:
            super().convert_op_to_relax()
        except Exception as error:
            self._note(op, index, type_, self._reason_of_failure(op, type_, error))

    def _type(self, op: Any) -> str:
        """TFLite's name of the operator, or CUSTOM:<code>."""
        code = self.model.OperatorCodes(op.OpcodeIndex())
        name = str(self.builtin_op_code[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())])
        return f"CUSTOM:{(code.CustomCode() or b'').decode(errors='replace')}" if name == "CUSTOM" else name

    def _reason_to_refuse(self, op: Any, type_: str, error: Exception) -> str:
        """Why TVM refuses the operator before it looks at it more closely."""
        if type_.startswith("CUSTOM:Flex"):
            return _FLEX
        if type_.startswith("CUSTOM:"):
            return _CUSTOM
        if type_ not in self.convert_map:
            return "TVM's importer has no converter for this operator; build the model without it"
        if not isinstance(error, tvm.error.OpNotImplemented):
            return f"TVM's importer fails with {one_line(error)}"
        # What is left are quantised operators: it is either the weights alone, or also the data.
        data = [tensor for tensor in (*self.get_input_tensors(op)[:1], *self.get_output_tensors(op))]
        if not any(tensor.qnn_params for tensor in data):
            return _DYNAMIC_RANGE
        return f"TVM's importer has no quantised {type_}; convert the model in float"

    def _reason_of_failure(self, op: Any, type_: str, error: Exception) -> str:
        """Why the operator's own converter failed."""
        inputs = self._indices_or_empty(op.InputsAsNumpy())
        if any(self._is_sparse(int(tensor)) for tensor in inputs if tensor >= 0):
            return _SPARSE
        reason = f"TVM's converter fails with {one_line(error)}"
        if type_ in _ADVICE:
            reason += f"; {_ADVICE[type_]}"
        causes = sorted({self._placeholders[int(tensor)] for tensor in inputs if int(tensor) in self._placeholders})
        if causes:
            reason += f" (perhaps only because of op {causes[0]}, whose output it reads)"
        return reason

    def _is_sparse(self, tensor: int) -> bool:
        """Whether the tensor is stored sparse, or is the output of the DENSIFY of one that is."""
        return self.subgraph.Tensors(tensor).Sparsity() is not None or self.is_prefetched(tensor)

    def _note(self, op: Any, index: int, type_: str, reason: str) -> None:
        """Write the problem down and put zeros in place of the operator's outputs."""
        outputs = [int(tensor) for tensor in self._indices_or_empty(op.OutputsAsNumpy())]
        place: dict[str, Any] = {"op": index, "subgraph": self._subgraph_number(), "type": type_}
        if outputs:
            place["output"] = get_tensor_name(self.subgraph, outputs[0])
            place["shape"] = tuple(self._declared_shape(outputs[0]))
        self._problems.append(Problem(reason=reason, **place))
        for tensor in outputs:
            self._placeholders[tensor] = index
            self.exp_tab.set_expr(get_tensor_name(self.subgraph, tensor), self._zeros(tensor), force_override=True)

    def _subgraph_number(self) -> int:
        places = [self.model.Subgraphs(number)._tab.Pos for number in range(self.model.SubgraphsLength())]
        return places.index(self.subgraph._tab.Pos)

    def _declared_shape(self, tensor: int) -> list[int]:
        return [int(extent) for extent in self._indices_or_empty(self.subgraph.Tensors(tensor).ShapeAsNumpy())]

    def _zeros(self, tensor: int) -> relax.Expr:
        """Zeros of the shape and dtype the file declares; of float32 where Relax has no such dtype."""
        shape = self._get_relax_tensor_shape(self.subgraph.Tensors(tensor))
        try:
            dtype = self._get_relax_tensor_dtype(self.subgraph.Tensors(tensor))
        except NotImplementedError:
            dtype = "float32"
        return self.bb.emit(relax.op.zeros(shape, dtype))


class _OneOperator:
    """A subgraph that seems to have one operator only, the one at `index`."""

    def __init__(self, subgraph: Any, index: int) -> None:
        self._subgraph, self._index = subgraph, index

    def OperatorsLength(self) -> int:  # the name TVM asks for
        """One."""
        return 1

    def Operators(self, _: int) -> Any:
        """The one operator."""
        return self._subgraph.Operators(self._index)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subgraph, name)
