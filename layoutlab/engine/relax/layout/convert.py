"""Applying a layout plan to a module, and proving that it was applied."""

from __future__ import annotations

import tvm
from tvm import relax

from layoutlab.engine.base import LayoutTransform
from layoutlab.engine.relax.layout.census import count_transforms
from layoutlab.engine.relax.layout.plan import Decision, find_convs
from layoutlab.engine.relax.layout.propagate import propagate
from layoutlab.errors import StageError
from layoutlab.hooks import Hook, Nchwc


def apply_plan(mod: tvm.IRModule, decisions: list[Decision]) -> tuple[tvm.IRModule, list[LayoutTransform]]:
    """Rewrite every convolution to its decided layout; returns the module and the transforms that this added.

    A plan that changes nothing returns the module as it is. Raises StageError("layout") if a convolution did not
    end in the layout decided for it, or if the module holds other transforms than those returned.
    """
    if not any(decision.changes for decision in decisions):
        return mod, []
    converted, transforms = propagate(mod, decisions)
    converted = relax.transform.CanonicalizeBindings()(converted)
    _prove_applied(converted, decisions)
    moving = sum(transform.moved_bytes > 0 for transform in transforms)
    found = count_transforms(converted) - count_transforms(mod)
    if found != moving:
        raise StageError("layout", f"{moving} layout transforms were made, but the module holds {found}")
    return converted, transforms


def _prove_applied(mod: tvm.IRModule, decisions: list[Decision]) -> None:
    convs = [_layouts(call) for _, call in find_convs(mod)]
    if len(convs) != len(decisions):
        raise StageError("layout", f"{len(convs)} of {len(decisions)} convolutions are left")
    for decision, found in zip(decisions, convs, strict=True):
        wanted = (decision.layout.data, decision.layout.kernel, decision.layout.out)
        if found != wanted:
            raise StageError(
                "layout",
                f"conv {decision.conv.index} was to become {'/'.join(wanted)} but it is {'/'.join(found)}",
            )


def _layouts(call: relax.Call) -> tuple[str, str, str]:
    return str(call.attrs.data_layout), str(call.attrs.kernel_layout), str(call.attrs.out_layout)


def require_change(decisions: list[Decision], convert_layout: str | None, hook: Hook | None) -> None:
    """Fail a variant whose requested conversion changed nothing: its row would pass off one layout as another.

    A hook that answers None for everything (`keep`, or a user's own) asked for nothing and is fine; `nchwc` that packs
    nothing is not, even where convert_layout did change the layouts. Raises StageError("layout").
    """
    packs_nothing = isinstance(hook, Nchwc) and all(decision.answer is None for decision in decisions)
    if any(decision.changes for decision in decisions) and not packs_nothing:
        return
    asked = _asked(decisions, convert_layout, hook, packs_nothing)
    if asked is None:
        return
    if not decisions:
        raise StageError("layout", f"{asked} was asked for, but the model has no conv2d to convert")
    layouts = ", ".join(sorted({str(d.layout) for d in decisions}))
    reason = f" ({hook.why_kept(decisions[0].conv)}, and so on)" if isinstance(hook, Nchwc) and packs_nothing else ""
    raise StageError(
        "layout",
        f"{asked} was asked for, but it changed nothing: all {len(decisions)} convolutions stay {layouts}{reason}. "
        "Leave it out to compare the model as it is, or ask for a layout their channels allow",
    )


def _asked(decisions: list[Decision], convert_layout: str | None, hook: Hook | None, packs_nothing: bool) -> str | None:
    """What the variant asked for, in a word; None when it asked for nothing."""
    if isinstance(hook, Nchwc) and packs_nothing:
        return f"NCHW{hook.block}c"
    return convert_layout or next((str(d.answer) for d in decisions if d.answer is not None), None)
