"""What has to be true of a module before a layout is chosen, so that the layout can flow through it."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

# Elementwise operators of two operands whose constant operand may need lifting to the other's rank.
_BROADCASTING = {
    f"relax.{name}"
    for name in (
        "add",
        "subtract",
        "multiply",
        "divide",
        "maximum",
        "minimum",
        "power",
        "prelu",
        "floor_divide",
    )
}


@mutator
class _LiftBroadcastConstants(PyExprMutator):
    """Reshape constant operands to the rank of the other operand: bias [C] becomes [1, 1, 1, C].

    Only at the same rank is it plain which axis of the bias is the channel axis of x, wherever that is stored.
    Scalars broadcast under every layout and stay.
    """

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if getattr(call.op, "name", "") not in _BROADCASTING or len(call.args) != 2:
            return call
        left, right = call.args
        lifted = [self._lift(left, right), self._lift(right, left)]
        return self.builder_.normalize(relax.Call(call.op, lifted, call.attrs))

    def _lift(self, operand: relax.Expr, other: relax.Expr) -> relax.Expr:
        if not is_constant(operand) or other.ty.shape is None:
            return operand
        missing = len(other.ty.shape) - len(operand.ty.shape)
        if missing <= 0 or len(operand.ty.shape) == 0:
            return operand
        value = operand.value.numpy()
        return relax.const(value.reshape((1,) * missing + value.shape))


def is_constant(expr: relax.Expr) -> bool:
    """Whether the expression is a tensor constant (`relax.const`)."""
    return isinstance(expr, tvm.ir.GenericConst)


def canonicalise(mod: tvm.IRModule) -> tvm.IRModule:
    """Fold constants, drop bindings nothing uses, and lift broadcast constants to full rank."""
    mod = tvm.transform.Sequential(
        [
            relax.transform.DecomposeOpsForInference(),
            relax.transform.CanonicalizeBindings(),
            relax.transform.FoldConstant(),
            relax.transform.DeadCodeElimination(),
        ]
    )(mod)
    return relax.transform.CanonicalizeBindings()(_rewrite(mod, _LiftBroadcastConstants(mod)))


def _rewrite(mod: tvm.IRModule, step: PyExprMutator) -> tvm.IRModule:
    for variable, function in mod.functions_items():
        if isinstance(function, relax.Function):
            step.builder_.update_func(variable, step.visit_expr(function))
    return step.builder_.get()
