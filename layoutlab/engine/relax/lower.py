"""From Relax operators to the fused TIR functions that are tuned and built."""

from __future__ import annotations

import tvm
from tvm import relax

from layoutlab.engine.relax.layout.packed import legalize_conv2d as legalize_packed_conv2d
from layoutlab.engine.relax.provenance.fusion import fused_marks
from layoutlab.engine.relax.provenance.marks import marks_by_variable, remark
from layoutlab.engine.relax.vectors import vector_floats
from layoutlab.engine.relax.whole_vectors import legalize_padded, pads_output_channels
from layoutlab.errors import StageError


def lower(mod: tvm.IRModule, target: tvm.target.Target, pack_weights: bool, fuse: bool = True) -> tvm.IRModule:
    """Legalise and fuse. With `pack_weights`, constants are marked so that tuning may choose their layout.

    Without `fuse` each operator of TVM has a function of its own: a convolution, its bias and its activation are three.
    Each call of the result is marked with all that its function computes (`provenance.marks`).

    Raises StageError("lower") if any operator survives: TVM only logs what it cannot legalise.
    """
    lowered = finish(legalise(mod, target), target, pack_weights, fuse)
    _require_lowered(lowered)
    return lowered


def legalise(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Each operator as a call of a function of its own, marked with what it computes; see `lower`."""
    floats = vector_floats(target)

    def legalize_conv2d(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if pads_output_channels(call, floats):
            return legalize_padded(builder, call, floats)
        return legalize_packed_conv2d(builder, call)

    with target:
        legal = _run(mod, relax.transform.LegalizeOps({"relax.nn.conv2d": legalize_conv2d}))
        marked = remark(legal, marks_by_variable(mod))
        return _run(marked, relax.transform.AnnotateTIROpPattern(), relax.transform.FoldConstant())


def finish(single: tvm.IRModule, target: tvm.target.Target, pack_weights: bool, fuse: bool = True) -> tvm.IRModule:
    """What `lower` does with a legalised module."""
    free = [relax.transform.AttachAttrLayoutFreeBuffers()] if pack_weights else []
    with target:
        if not fuse:
            return remark(_run(single, *free), marks_by_variable(single))
        grouped = _run(single, relax.transform.FuseOps())
        return remark(_run(grouped, relax.transform.FuseTIR(), *free), fused_marks(single, grouped))


def _run(mod: tvm.IRModule, *passes: tvm.transform.Pass) -> tvm.IRModule:
    """Run the passes, without those that the pass context leaves out."""
    return tvm.transform.Sequential(list(passes))(mod) if passes else mod


def _require_lowered(mod: tvm.IRModule) -> None:
    survivors: list[str] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            name = str(expr.op.name)
            if name.startswith(("relax.nn.", "relax.image.")) or name in (
                "relax.layout_transform",
                "relax.permute_dims",
            ):
                survivors.append(f"{name.removeprefix('relax.')} -> {expr.ty}")

    relax.analysis.post_order_visit(mod["main"], visit)
    if survivors:
        raise StageError("lower", f"{len(survivors)} operators have no kernel: {'; '.join(survivors[:5])}")
