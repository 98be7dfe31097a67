"""Marks from the start: which operator of the .tflite file each call of the imported module comes from."""

from __future__ import annotations

from typing import Any

import tflite
import tvm
from tvm import relax
from tvm.relax.frontend.tflite import from_tflite
from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter, get_tensor_name

from layoutlab.engine.relax.provenance.marks import Marks, bindings_of, with_marks


def from_tflite_marked(model: tflite.Model) -> tvm.IRModule:
    """TVM's import of the model, with each call of `main` marked with the number of the operator that it is part of.

    Raises whatever TVM's importer raises.
    """
    converters: list[Any] = []

    def keep(*arguments: Any) -> Any:
        converters.append(OperatorConverter(*arguments))
        return converters[-1]

    # The importer calls what it takes for the class once, for `main`.
    mod = from_tflite(model, op_converter=keep)
    return with_marks(mod, _marks(mod, model.Subgraphs(0), converters[0].exp_tab.exprs))


def _marks(mod: tvm.IRModule, graph: Any, tensors: dict[str, relax.Expr]) -> dict[relax.Var, Marks]:
    """For each variable the operator that it is of. `tensors` are the importer's expressions of the tensors, by name.

    An operator's expression is a tree of calls down to the tensors of operators before it. The importer binds the calls
    to variables as they are read, so a call is known by itself as well as by its variable.
    """
    values = {binding.var: binding.value for binding in bindings_of(mod["main"])}
    owners: dict[int, int] = {}

    def own(expr: relax.Expr, operator: int) -> None:
        if hash(expr) in owners:
            return
        if isinstance(expr, relax.Var):
            if expr not in values:
                return
            own(values[expr], operator)
            owners[hash(expr)] = owners.get(hash(values[expr]), operator)
        elif isinstance(expr, relax.Call):
            owners[hash(expr)] = operator
            for argument in expr.args:
                own(argument, operator)
        elif isinstance(expr, relax.Tuple):
            for field in expr.fields:
                own(field, operator)
        elif isinstance(expr, relax.TupleGetItem):
            own(expr.tuple_value, operator)

    for operator in range(graph.OperatorsLength()):
        for output in range(graph.Operators(operator).OutputsLength()):
            expr = tensors.get(get_tensor_name(graph, graph.Operators(operator).Outputs(output)))
            if expr is not None:
                own(expr, operator)
    found = {variable: owners.get(hash(value), owners.get(hash(variable))) for variable, value in values.items()}
    return {variable: (str(operator),) for variable, operator in found.items() if operator is not None}
