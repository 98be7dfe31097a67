"""Everything in a model that TVM's importer would refuse, found in one walk.

TVM stops at the first operator whose converter fails. The walk here uses TVM's own converters, one operator at a
time: what fails is written down, its outputs become zeros of the shape and dtype the file declares, and the walk goes
on. A model without problems was therefore imported, operator by operator, just as `from_tflite` does it.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import tflite
import tvm
from tvm import relax
from tvm.relax.frontend.tflite import from_tflite
from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter, get_tensor_name

from layoutlab.engine.preflight import Preflight, Problem
from layoutlab.errors import ModelError, printable
from layoutlab.model.describe import STAGE, TensorInfo, describe, shown_name

# The dtypes an input can have in Relax, by the schema's names; complex64 becomes pairs of float32.
_INPUT_DTYPES = frozenset(
    {"float32", "float16", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "bool", "complex64"}
)

_SPARSE = (
    "the weights are stored sparse, in a form TVM's importer does not read; convert the model without sparsity, "
    "or make its weights dense before converting"
)
_DYNAMIC_RANGE = (
    "the weights are quantised but the data is not (dynamic-range quantisation), which TVM's importer does not read; "
    "convert the model in float, or with full integer quantisation"
)
_FLEX = "the operator is TensorFlow's own; convert the model with TFLite's builtin operators only (no SELECT_TF_OPS)"
_CUSTOM = "TVM's importer has no converter for custom operators; build the model without this one"

# TVM quotes whole shapes and expressions; the first of so many characters say enough.
_LONGEST_MESSAGE = 300

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
    _require_well_formed(data)
    problems = [
        *_input_problems(description.inputs),
        *name_problems(data),
        *_walk(_with_known_inputs(data, description.inputs)),
    ]
    return Preflight(
        inputs=description.inputs,
        outputs=description.outputs,
        op_counts=description.op_counts(),
        problems=tuple(problems),
    )


def one_line(error: Exception) -> str:
    """The error's class and message on one line; without a message, the source line that raised it."""
    message = printable(" ".join(str(error).split()).rstrip("."))
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + " ..."
    if not message:
        frames = traceback.extract_tb(error.__traceback__)
        message = f"no message, raised by `{frames[-1].line}`" if frames else "no message"
    return f"{type(error).__name__}: {message}"


def _require_well_formed(data: bytes) -> None:
    """Raise ModelError when the names or the data of some tensor lie outside of the file, as in one cut short."""
    model = tflite.Model.GetRootAs(data, 0)
    try:
        for number in range(model.BuffersLength()):
            model.Buffers(number).DataAsNumpy()
        name_problems(data)  # goes over every tensor and operator of every subgraph
    except Exception as error:
        raise ModelError(f"{STAGE}: the file is malformed ({type(error).__name__}: {error})") from error


def _input_problems(inputs: Sequence[TensorInfo]) -> list[Problem]:
    problems = []
    for tensor in inputs:
        if tensor.dtype not in _INPUT_DTYPES:
            reason = f"TVM's importer takes no input of dtype {tensor.dtype}; build the model with a numeric input"
            problems.append(Problem(input=tensor.name, reason=reason))
        if 0 in tensor.shape:
            problems.append(Problem(input=tensor.name, reason=f"the shape {list(tensor.shape)} has no elements"))
        if tensor.is_dynamic:
            reason = (
                f"the shape {list(tensor.shape)} is dynamic, and layouts are chosen for fixed ones; bind a dynamic "
                "batch with model.batch in the spec, and convert the model anew for any other dimension"
            )
            problems.append(Problem(input=tensor.name, reason=reason))
    return problems


def name_problems(data: bytes) -> list[Problem]:
    """At most one problem: tensors with the same name, one of which is computed.

    TVM's importer keeps computed tensors by their names, so it would read one for the other without a word.
    """
    model = tflite.Model.GetRootAs(data, 0)
    alike = [name for number in range(model.SubgraphsLength()) for name in _ambiguous_names(model.Subgraphs(number))]
    if not alike:
        return []
    others = f" (and {len(alike) - 1} other names are not unique either)" if len(alike) > 1 else ""
    reason = (
        f'several tensors are named "{alike[0]}"{others}, and TVM\'s importer tells tensors apart by their names; '
        "convert the model with a name of its own for each tensor"
    )
    return [Problem(reason=reason)]


def _ambiguous_names(graph: Any) -> list[str]:
    computed = {graph.Inputs(i) for i in range(graph.InputsLength())}
    for op in map(graph.Operators, range(graph.OperatorsLength())):
        computed.update(op.Outputs(i) for i in range(op.OutputsLength()))
    names = [graph.Tensors(i).Name() for i in range(graph.TensorsLength())]
    counts = Counter(name for name in names if name is not None)  # TVM makes up a name of its own where there is none
    return sorted({shown_name(names[i]) for i in computed if counts[names[i]] > 1})


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


class _CollectingConverter(OperatorConverter):
    """Converts what can be converted, and writes down the rest in `problems`, which all subgraphs share."""

    subgraph: Any

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
        # Output tensors that are zeros in place of values -> index of the operator that would have computed them.
        self._placeholders: dict[int, int] = {}

    def check_unsupported_ops(self) -> None:
        """Check nothing yet: each operator is checked when its turn comes."""

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
        return f"CUSTOM:{shown_name(code.CustomCode())}" if name == "CUSTOM" else name

    def _reason_to_refuse(self, op: Any, type_: str, error: Exception) -> str:
        """Why TVM refuses the operator before it looks at it more closely."""
        if type_.startswith("CUSTOM:Flex"):
            return _FLEX
        if type_.startswith("CUSTOM:"):
            return _CUSTOM
        if type_ not in self.convert_map:
            return f"TVM's importer has no converter for {type_}; build the model without it"
        if not isinstance(error, tvm.error.OpNotImplemented):
            return f"TVM's importer fails with {one_line(error)}"
        # What is left are quantised operators: it is either the weights alone, or also the data.
        data = [*self.get_input_tensors(op)[:1], *self.get_output_tensors(op)]
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
            place["output"] = printable(get_tensor_name(self.subgraph, outputs[0]))
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
