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


def lower(mod: tvm.IRModule, target: tvm.target.Target, pack_weights: bool) -> tvm.IRModule:
    """Legalise and fuse. With `pack_weights`, constants are marked so that tuning may choose their layout.

    Each call of the result is marked with all that its function computes (`provenance.marks`).

    Raises StageError("lower") if any operator survives: TVM only logs what it cannot legalise.
    """
    floats = vector_floats(target)

    def legalize_conv2d(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if pads_output_channels(call, floats):
            return legalize_padded(builder, call, floats)
        return legalize_packed_conv2d(builder, call)

    fold = [relax.transform.AnnotateTIROpPattern(), relax.transform.FoldConstant()]
    finish = [relax.transform.FuseTIR()]
    if pack_weights:
        finish.append(relax.transform.AttachAttrLayoutFreeBuffers())
    with target:
        legal = relax.transform.LegalizeOps({"relax.nn.conv2d": legalize_conv2d})(mod)
        single = tvm.transform.Sequential(fold)(remark(legal, marks_by_variable(mod)))
        grouped = relax.transform.FuseOps()(single)
        lowered = remark(tvm.transform.Sequential(finish)(grouped), fused_marks(single, grouped))
    _require_lowered(lowered)
    return lowered


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
