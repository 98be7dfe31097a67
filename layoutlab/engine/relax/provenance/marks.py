"""Marks that travel with the calls of a module: which original operators each of them computes.

A mark is carried in a call's span, which TVM keeps when it rebuilds a call and which nothing else here uses. Passes
that replace calls by others keep the variables that they are bound to, so marks find their calls again: `remark`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import tvm
from tvm import relax

# The numbers of TFLite's operators, the names of layout transforms, which are ours, and with one of these two signs
# before it the layout of the call's result, where it is an image of a changed graph, or its function's name when tuned.
Marks = tuple[str, ...]
LAYOUT = "="
TASK = "@"

_SEPARATOR = "; "


def span_of(marks: Marks) -> tvm.ir.Span | None:
    """The span that carries the marks; None for no marks."""
    return tvm.ir.Span(tvm.ir.SourceName(_SEPARATOR.join(marks)), 0, 0, 0, 0) if marks else None


def marks_of(expr: relax.Expr) -> Marks:
    """The marks of a call; () for anything else, and for a call without marks."""
    if not isinstance(expr, relax.Call) or expr.span is None:
        return ()
    return tuple(str(expr.span.source_name.name).split(_SEPARATOR))


def marked(expr: relax.Expr, marks: Marks) -> relax.Expr:
    """A copy of a call that carries the marks; anything else as it is."""
    if not isinstance(expr, relax.Call) or not marks:
        return expr
    return relax.Call(expr.op, expr.args, expr.attrs, expr.ty_args, span_of(marks), expr.ty)


def bindings_of(function: relax.Function) -> Iterator[relax.Binding]:
    """All bindings of a function, in execution order."""
    for block in function.body.blocks:
        yield from block.bindings


def marks_by_variable(mod: tvm.IRModule) -> dict[relax.Var, Marks]:
    """The marks of each call of `main`, by the variable that it is bound to."""
    return {
        binding.var: marks_of(binding.value)
        for binding in bindings_of(mod["main"])
        if isinstance(binding.value, relax.Call)
    }


def remark(mod: tvm.IRModule, known: Mapping[relax.Var, Marks]) -> tvm.IRModule:
    """The module with marks on the calls of `main`, `known` by variable from before a pass that lost them.

    A pass that writes one call as several binds the last to the old variable, or the old variable to the last, and the
    others just before it: these get the same marks.
    """
    new: dict[relax.Var, Marks] = {}
    others: list[relax.Var] = []
    for binding in bindings_of(mod["main"]):
        if binding.var in known:
            new.update({variable: known[binding.var] for variable in (*others, binding.var)})
            others = []
        elif isinstance(binding.value, relax.Call):
            others.append(binding.var)
    return with_marks(mod, new)


def joined(marks: Iterable[str]) -> Marks:
    """Marks of several calls as those of one: each once, in the order in which they are met last."""
    return tuple(dict.fromkeys(reversed(list(marks))))[::-1]


def name_functions(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with the name of its function added to the marks of each call, before passes that rename functions."""
    named = {
        binding.var: (*marks_of(binding.value), f"{TASK}{binding.value.args[0].name_hint}")
        for binding in bindings_of(mod["main"])
        if isinstance(binding.value, relax.Call) and isinstance(binding.value.args[0], tvm.ir.GlobalVar)
    }
    return with_marks(mod, named)


def with_marks(mod: tvm.IRModule, marks: Mapping[relax.Var, Marks]) -> tvm.IRModule:
    """The module with these marks on the calls of `main`; its variables stay what they are."""
    main = mod["main"]
    blocks = []
    for block in main.body.blocks:
        bindings = [
            relax.VarBinding(binding.var, marked(binding.value, marks[binding.var]))
            if isinstance(binding, relax.VarBinding) and binding.var in marks
            else binding
            for binding in block.bindings
        ]
        blocks.append(type(block)(bindings))
    body = relax.SeqExpr(blocks, main.body.body)
    changed = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    others = {name: function for name, function in mod.functions_items() if str(name.name_hint) != "main"}
    name = mod.get_global_var("main")
    return tvm.IRModule({**others, name: changed}, attrs=mod.attrs)
