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
    """For each variable the operator that it is of. `tensors` are the importer's expressions, by name."""
    values = {binding.var: binding.value for binding in bindings_of(mod["main"])}
    owners = _Owners(values)
    for operator in range(graph.OperatorsLength()):
        for output in range(graph.Operators(operator).OutputsLength()):
            expr = tensors.get(get_tensor_name(graph, graph.Operators(operator).Outputs(output)))
            if expr is not None:
                owners.give(expr, operator)
    found = {variable: owners.of(variable, value) for variable, value in values.items()}
    return {variable: (str(operator),) for variable, operator in found.items() if operator is not None}


class _Owners:
    """Which operator each expression of the importer is part of.

    An operator's expression is a tree of calls down to the tensors of operators before it. The importer binds calls to
    variables as they are read, so a call is known by itself as well as by its variable.
    """

    def __init__(self, values: dict[relax.Var, relax.Expr]) -> None:
        self._values = values
        self._operators: dict[int, int] = {}

    def give(self, expr: relax.Expr, operator: int) -> None:
        """Everything in the expression that no operator before it has is the operator's."""
        if hash(expr) in self._operators or (isinstance(expr, relax.Var) and expr not in self._values):
            return
        if isinstance(expr, relax.Var):
            value = self._values[expr]
            self.give(value, operator)
            self._operators[hash(expr)] = self._operators.get(hash(value), operator)
            return
        if isinstance(expr, relax.Call):
            self._operators[hash(expr)] = operator
        for part in _parts(expr):
            self.give(part, operator)

    def of(self, variable: relax.Var, value: relax.Expr) -> int | None:
        """The operator of what is bound to the variable; None for what is no operator's."""
        return self._operators.get(hash(value), self._operators.get(hash(variable)))


def _parts(expr: relax.Expr) -> list[relax.Expr]:
    if isinstance(expr, relax.Call):
        return list(expr.args)
    if isinstance(expr, relax.Tuple):
        return list(expr.fields)
    return [expr.tuple_value] if isinstance(expr, relax.TupleGetItem) else []
