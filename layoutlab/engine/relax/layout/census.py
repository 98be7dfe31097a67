"""What layouts a module really contains: convolutions per layout, and the layout transforms between them."""

from __future__ import annotations

from collections import Counter

import tvm
from tvm import relax

from layoutlab.engine.base import Census, LayoutTransform
from layoutlab.engine.relax.layout.plan import describe_conv, find_convs, static_shape


def take_census(mod: tvm.IRModule) -> Census:
    """Count convolutions by layout and list every transform that is executed (constants are folded already)."""
    layouts = Counter(str(describe_conv(index, call).layout) for index, (_, call) in enumerate(find_convs(mod)))
    return Census(conv_layouts=dict(sorted(layouts.items())), transforms=tuple(_transforms(mod)))


def _transforms(mod: tvm.IRModule) -> list[LayoutTransform]:
    bindings = [
        (binding.var, binding.value)
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if isinstance(getattr(binding, "value", None), relax.Call)
    ]
    makers = {variable: _op_name(call) for variable, call in bindings}
    found = []
    for variable, call in bindings:
        if _op_name(call) not in ("permute_dims", "layout_transform"):
            continue
        users = [_op_name(user) for _, user in bindings if any(arg.same_as(variable) for arg in user.args)]
        shape = static_shape(call)
        found.append(
            LayoutTransform(
                op=_op_name(call),
                after=makers.get(call.args[0], "input"),
                before=", ".join(sorted(set(users))) or "output",
                from_shape=static_shape(call.args[0]),
                to_shape=shape,
                moved_bytes=2 * _bytes(call),
            )
        )
    return found


def _op_name(call: relax.Call) -> str:
    name = getattr(call.op, "name", None) or getattr(call.op, "name_hint", "call")
    return str(name).removeprefix("relax.")


def _bytes(call: relax.Call) -> int:
    """Size of the result in bytes."""
    total = tvm.DataType(str(call.ty.dtype)).bits // 8
    for extent in static_shape(call):
        total *= extent
    return total
