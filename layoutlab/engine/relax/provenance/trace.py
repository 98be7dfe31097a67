"""Which operators each executed function of a built module computes, read off the marks of its calls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tvm
from tvm import relax
from tvm_ffi import structural_equal, structural_hash

from layoutlab.engine.provenance import (
    AS_VIEW,
    AT_COMPILE_TIME,
    COMPUTED_ONCE,
    NOT_IMPORTED,
    UNKNOWN,
    UNUSED,
    ExecutedFunction,
    Operator,
    Provenance,
)
from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.provenance.fusion import Key, key_of
from layoutlab.engine.relax.provenance.marks import (
    LAYOUT,
    TASK,
    Marks,
    bindings_of,
    marks_by_variable,
    marks_of,
    remark,
)
from layoutlab.engine.relax.tvm_cpu import meta_schedule
from layoutlab.model.work import operators

_CALLS = frozenset({"relax.call_tir", "relax.call_tir_inplace", "relax.call_dps_packed"})


def trace(
    built: tvm.IRModule, data: bytes, lowered: tvm.IRModule, tasks: Sequence[meta_schedule.ExtractedTask]
) -> Provenance:
    """The functions that an inference of `built` executes, in order, and where each operator of the model `data` went.

    `built` is the module that is compiled, `lowered` the one that it was made of, `tasks` the tuning tasks of that.
    """
    # What becomes of reshapes when the module is compiled.
    reshaped = tvm.transform.Sequential([relax.transform.RewriteDataflowReshape()])(built)
    final = remark(reshaped, marks_by_variable(built))
    calls = [binding.value for binding in bindings_of(final["main"]) if isinstance(binding.value, relax.Call)]
    executed = [call for call in calls if str(getattr(call.op, "name", "")) in _CALLS]
    views = {mark for call in calls if call not in executed for mark in marks_of(call)}
    homes = {mark: node for node, call in enumerate(executed) for mark in _operators(marks_of(call))}
    ops = operators(data)
    names = task_names(lowered, tasks)
    functions = tuple(_executed(node, call, homes, ops, names) for node, call in enumerate(executed))
    missing = [op.index for op in ops if op.index not in homes]
    return Provenance(operators=ops, functions=functions, removed=_reasons(missing, views, data) if missing else {})


def _executed(
    node: int, call: relax.Call, homes: Mapping[int, int], ops: Sequence[Operator], names: Mapping[str, str]
) -> ExecutedFunction:
    marks = marks_of(call)
    own = [op for op in _operators(marks) if homes[op] == node]
    transforms = [mark for mark in marks if not mark.isdecimal() and not mark.startswith((LAYOUT, TASK))]
    output = call.ty_args[0]
    first = output.fields[0] if isinstance(output, tvm.ir.TupleType) else output
    shape = tuple(int(extent) for extent in first.shape)
    return ExecutedFunction(
        node=node,
        function=_name(call),
        task=next((names.get(mark.removeprefix(TASK)) for mark in marks if mark.startswith(TASK)), None),
        ops=tuple(own),
        parts=tuple(op for op in _operators(marks) if homes[op] != node),
        transforms=tuple(transforms),
        shape=shape,
        dtype=str(first.dtype),
        layout=_layout(marks, shape),
        flop=sum(ops[op].flop for op in own),
        bytes=_bytes([argument.ty for argument in call.args[1].fields]) + _bytes([output]),
    )


def _name(call: relax.Call) -> str:
    callee = call.args[0]
    return str(callee.name_hint if isinstance(callee, tvm.ir.GlobalVar) else callee.global_symbol)


def _operators(marks: Iterable[str]) -> list[int]:
    return sorted(int(mark) for mark in marks if mark.isdecimal())


def _layout(marks: Marks, shape: tuple[int, ...]) -> str | None:
    """The layout of the output: that of the last call in the function; images are NHWC where nothing was changed."""
    known = [mark.removeprefix(LAYOUT) for mark in marks if mark.startswith(LAYOUT)]
    rank = len(shape)
    fitting = [layout for layout in known if sum(letter.isalpha() for letter in layout) == rank]
    return fitting[-1] if fitting else "NHWC" if rank == 4 else None


def _bytes(types: Iterable[tvm.ir.Type]) -> int:
    total = 0
    for type_ in types:
        if isinstance(type_, tvm.ir.TupleType):
            total += _bytes(type_.fields)
        elif isinstance(type_, relax.TensorType):
            total += math.prod(int(extent) for extent in type_.shape) * np.dtype(str(type_.dtype)).itemsize
    return total


def task_names(lowered: tvm.IRModule, tasks: Sequence[meta_schedule.ExtractedTask]) -> dict[str, str]:
    """The task of each function of the lowered module; equal functions have one task, named after one of them."""
    known = {str(task.task_name) for task in tasks}
    normalize = tvm.get_global_func("tvm.s_tir.meta_schedule.normalize_mod")
    found = {}
    for variable, function in lowered.functions_items():
        name = str(variable.name_hint)
        if name in known:
            found[name] = name
        elif isinstance(function, tvm.tirx.PrimFunc):
            mod = normalize(function)
            equal = (task for task in tasks if structural_equal(task.dispatched[0], mod))
            task = next(equal, None)
            if task is not None:
                found[name] = str(task.task_name)
    return found


def _reasons(missing: Iterable[int], views: Iterable[str], data: bytes) -> dict[int, str]:
    """Why the operators are in no function."""
    imported = import_model(data)["main"]
    bound = {binding.var: binding.value for binding in bindings_of(imported)}
    varying = _depend_on(imported.params, bound)
    needed = _needed(imported.body.body, bound)
    twins = _twins(bound)
    reasons = {}
    for op in missing:
        own = [variable for variable, value in bound.items() if str(op) in marks_of(value)]
        if not own:
            reasons[op] = NOT_IMPORTED
        elif not any(variable in needed for variable in own):
            reasons[op] = UNUSED
        elif not any(variable in varying for variable in own):
            reasons[op] = AT_COMPILE_TIME
        elif str(op) in views:
            reasons[op] = AS_VIEW
        else:
            reasons[op] = COMPUTED_ONCE.format(twins[own[-1]]) if own[-1] in twins else UNKNOWN
    return reasons


def _twins(bound: Mapping[relax.Var, relax.Expr]) -> dict[relax.Var, str]:
    """For each variable whose value an earlier operator computes as well: the marks of that."""
    names: dict[relax.Var, Key] = {}
    first: dict[Key, relax.Var] = {}
    twins = {}
    for variable, value in bound.items():
        attributes = getattr(value, "attrs", None)
        key = (key_of(value, names), None if attributes is None else structural_hash(attributes))
        earlier = first.setdefault(key, variable)
        names[variable] = key
        if earlier is not variable:
            twins[variable] = ", ".join(marks_of(bound[earlier]))
    return twins


def _variables(expr: relax.Expr) -> list[relax.Var]:
    found: list[relax.Var] = []
    relax.analysis.post_order_visit(expr, lambda part: found.append(part) if isinstance(part, relax.Var) else None)
    return found


def _depend_on(parameters: Iterable[relax.Var], bound: Mapping[relax.Var, relax.Expr]) -> set[relax.Var]:
    """The variables whose values depend on the parameters."""
    varying = set(parameters)
    for variable, value in bound.items():
        if any(operand in varying for operand in _variables(value)):
            varying.add(variable)
    return varying


def _needed(result: relax.Expr, bound: Mapping[relax.Var, relax.Expr]) -> set[relax.Var]:
    """The variables that the result is computed from."""
    needed = set(_variables(result))
    for variable in reversed(list(bound)):
        if variable in needed:
            needed.update(_variables(bound[variable]))
    return needed
