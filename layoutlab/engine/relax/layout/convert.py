"""Applying a layout plan to a module, and proving that it was applied."""

from __future__ import annotations

import tvm
from tvm import relax

from layoutlab.engine.relax.layout.plan import Decision, find_convs
from layoutlab.errors import StageError


def apply_plan(mod: tvm.IRModule, decisions: list[Decision]) -> tvm.IRModule:
    """Rewrite every convolution to its decided layout in one ConvertLayout pass.

    The callback answers for every convolution, also for those that stay: without an answer ConvertLayout lets
    the layout of a neighbour flow through the convolution, and "keep" would not be kept. Raises
    StageError("layout") if a convolution did not end in the layout decided for it.
    """
    if not any(decision.changes for decision in decisions):
        return mod
    remaining = iter(decisions)

    def layout_of(call: relax.Call) -> dict[str, list[str]]:
        # Called for every operator, in execution order, once each.
        if call.op.name != "relax.nn.conv2d":
            return {}
        layout = next(remaining).layout
        return {"relax.nn.conv2d": [layout.data, layout.kernel, layout.out]}

    converted = tvm.transform.Sequential(
        [
            relax.transform.ConvertLayout({}, layout_of),
            relax.transform.Normalize(),
            relax.transform.FoldConstant(),
            relax.transform.CanonicalizeBindings(),
        ]
    )(mod)
    _prove_applied(converted, decisions)
    return converted


def _prove_applied(mod: tvm.IRModule, decisions: list[Decision]) -> None:
    convs = [_layouts(call) for _, call in find_convs(mod)]
    if len(convs) != len(decisions):
        raise StageError("layout", f"ConvertLayout left {len(convs)} of {len(decisions)} convolutions")
    for decision, found in zip(decisions, convs, strict=True):
        wanted = (decision.layout.data, decision.layout.kernel, decision.layout.out)
        if found != wanted:
            raise StageError(
                "layout",
                f"conv {decision.conv.index} was to become {'/'.join(wanted)} "
                f"but ConvertLayout left it {'/'.join(found)}",
            )


def _layouts(call: relax.Call) -> tuple[str, str, str]:
    return str(call.attrs.data_layout), str(call.attrs.kernel_layout), str(call.attrs.out_layout)


def require_change(decisions: list[Decision], convert_layout: str | None, hook_label: str | None) -> None:
    """Fail a variant whose requested conversion changed nothing: its row would pass off one layout as another.

    A hook that answers None for everything (`keep`, or a user's own) asked for nothing and is fine.
    """
    if any(decision.changes for decision in decisions):
        return
    asked = convert_layout or next((str(d.answer) for d in decisions if d.answer is not None), None)
    if asked is None and hook_label is not None and hook_label.startswith(("nchw", "nhwc")):
        asked = hook_label
    if asked is None:
        return
    if not decisions:
        raise StageError("layout", f"{asked} was asked for, but the model has no conv2d to convert")
    layouts = ", ".join(sorted({str(d.conv.layout) for d in decisions}))
    raise StageError(
        "layout",
        f"{asked} was asked for, but it changed nothing: all {len(decisions)} convolutions stay {layouts}. "
        "Leave it out to compare the model as it is, or ask for a layout their channels allow",
    )
