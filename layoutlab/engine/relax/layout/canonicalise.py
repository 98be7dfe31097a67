"""What has to be true of a module before a layout is chosen, so that the layout can flow through it."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import DFPattern, is_const, is_op, rewrite_call, wildcard
from tvm.relax.expr_functor import PyExprMutator, mutator

from layoutlab.engine.relax.provenance.marks import marks_by_variable, remark

# Elementwise operators of two operands, which broadcast.
BINARY = frozenset({"add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "floor_divide"})


@mutator
class _LiftBroadcastConstants(PyExprMutator):
    """Reshape constant operands to the rank of the other operand: bias [C] becomes [1, 1, 1, C].

    Only at the same rank is it plain which axis of the bias is the channel axis of x, wherever that is stored.
    Scalars broadcast under every layout and stay.
    """

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if getattr(call.op, "name", "").removeprefix("relax.") not in BINARY:
            return call
        left, right = call.args
        lifted = [self._lift(left, right), self._lift(right, left)]
        return self.builder_.normalize(relax.Call(call.op, lifted, call.attrs, span=call.span))

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


def _prelu_as_min_max(function: relax.Function) -> relax.Function:
    """Write PReLU as maximum(x, 0) + slope * minimum(x, 0), with a slope of x's rank that broadcasts.

    TVM's importer flattens x for a PReLU and repeats the slope for every element: no layout could pass.
    """
    data, slope = wildcard(), is_const()
    flat = is_op("relax.reshape")(data, wildcard())
    pattern = is_op("relax.reshape")(is_op("relax.nn.prelu")(flat, slope), wildcard())

    def rewrite(call: relax.Call, found: dict[DFPattern, relax.Expr]) -> relax.Expr:
        x = found[data]
        shape = [int(extent) for extent in call.ty.shape]
        if [int(extent) for extent in x.ty.shape] != shape:
            return call
        dtype, zero = str(x.ty.dtype), relax.const(0, str(x.ty.dtype))
        slopes = relax.const(_shortest(found[slope].value.numpy().reshape(shape)), dtype)
        below = relax.op.multiply(slopes, relax.op.minimum(x, zero))
        return relax.op.add(relax.op.maximum(x, zero), below)

    return rewrite_call(pattern, rewrite, function)


def _shortest(value: np.ndarray) -> np.ndarray:
    """The smallest array that broadcasts to `value`: axes along which nothing changes become 1."""
    for axis in range(value.ndim):
        first = value.take([0], axis)
        if (value == first).all():
            value = first
    return value


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
    known = marks_by_variable(mod)
    mod["main"] = _prelu_as_min_max(mod["main"])
    mod = remark(relax.transform.Normalize()(mod), known)
    return relax.transform.CanonicalizeBindings()(_rewrite(mod, _LiftBroadcastConstants(mod)))


def _rewrite(mod: tvm.IRModule, step: PyExprMutator) -> tvm.IRModule:
    for variable, function in mod.functions_items():
        if isinstance(function, relax.Function):
            step.builder_.update_func(variable, step.visit_expr(function))
    return step.builder_.get()
