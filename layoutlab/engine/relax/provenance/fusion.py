"""Marks through FuseOps, which shares one function among all groups of calls that look alike.

The marks in the body of a shared function are those of its first group. So each group's call is followed into the
function, and the calls met there are found again among those before fusing: the same callee on the same operands.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from layoutlab.engine.relax.provenance.marks import Marks, bindings_of, joined, marks_of

# What stands for a value of the module before fusing: the hash of its variable or constant, or a structure of those.
Key = Any


class _Follower:
    """Follows the fused module and takes each call of the module before fusing once."""

    def __init__(self, before: tvm.IRModule) -> None:
        self._waiting: dict[Key, deque[tuple[Key, Marks]]] = defaultdict(deque)
        names: dict[relax.Var, Key] = {}
        for binding in bindings_of(before["main"]):
            key = key_of(binding.value, names)
            if isinstance(binding.value, relax.Call):
                self._waiting[key].append((hash(binding.var), marks_of(binding.value)))
            else:
                names[binding.var] = key

    def take(self, call: relax.Call, names: Mapping[relax.Var, Key]) -> tuple[Key, Marks]:
        """The variable that the call was bound to before fusing, and its marks; what is not found has none."""
        waiting = self._waiting[key_of(call, names)]
        return waiting.popleft() if waiting else (hash(call), ())


def key_of(expr: Any, names: Mapping[relax.Var, Key]) -> Key:
    """What stands for an expression: equal for the same callee on the same operands; `names` are keys of variables."""
    if isinstance(expr, relax.Var):
        return names.get(expr, hash(expr))
    if isinstance(expr, relax.Call):
        return ("call", key_of(expr.op, names), *(key_of(argument, names) for argument in expr.args))
    if isinstance(expr, relax.Tuple):
        return ("tuple", *(key_of(field, names) for field in expr.fields))
    if isinstance(expr, relax.TupleGetItem):
        fields = key_of(expr.tuple_value, names)
        return fields[1 + expr.index] if isinstance(fields, tuple) else ("item", fields, int(expr.index))
    if isinstance(expr, tvm.ir.GlobalVar):
        return str(expr.name_hint)
    return hash(expr) if isinstance(expr, tvm.ir.GenericConst) else str(expr)


def fused_marks(before: tvm.IRModule, fused: tvm.IRModule) -> dict[relax.Var, Marks]:
    """The marks of each call of `main` after FuseOps: those of every call before it that it stands for."""
    follower = _Follower(before)
    names: dict[relax.Var, Key] = {}
    found: dict[relax.Var, Marks] = {}
    for binding in bindings_of(fused["main"]):
        value = binding.value
        if not isinstance(value, relax.Call):
            names[binding.var] = key_of(value, names)
        elif isinstance(value.op, tvm.ir.GlobalVar):
            names[binding.var], found[binding.var] = _follow(fused[value.op], value, names, follower)
        else:
            names[binding.var], found[binding.var] = follower.take(value, names)
    return found


def _follow(
    function: relax.Function, call: relax.Call, names: Mapping[relax.Var, Key], follower: _Follower
) -> tuple[Key, Marks]:
    """The value that a call of a group's function gives, and the marks of all calls in it."""
    inner: dict[relax.Var, Key] = {
        parameter: key_of(argument, names) for parameter, argument in zip(function.params, call.args, strict=True)
    }
    marks: list[str] = []
    for binding in bindings_of(function):
        if isinstance(binding.value, relax.Call):
            inner[binding.var], found = follower.take(binding.value, inner)
            marks += found
        else:
            inner[binding.var] = key_of(binding.value, inner)
    return key_of(function.body.body, inner), joined(marks)
