"""What layouts a module really contains, read off its IR."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import tvm
from tvm import relax

from layoutlab.engine.base import Census, LayoutTransform
from layoutlab.engine.relax.layout.plan import describe_conv, find_convs, op_name


def take_census(mod: tvm.IRModule, transforms: Sequence[LayoutTransform] = ()) -> Census:
    """Convolutions by the layout they have, with the transforms that were made to get there."""
    layouts = Counter(str(describe_conv(index, call).layout) for index, (_, call) in enumerate(find_convs(mod)))
    return Census(conv_layouts=dict(sorted(layouts.items())), transforms=tuple(transforms))


def count_transforms(mod: tvm.IRModule) -> int:
    """Operators of `main` that do nothing but move a tensor to another layout; constants are folded by then."""
    return sum(name in ("permute_dims", "layout_transform") for name in _operators(mod))


def holds(mod: tvm.IRModule, operator: str) -> bool:
    """Whether `main` calls the operator of this name."""
    return operator in _operators(mod)


def _operators(mod: tvm.IRModule) -> list[str]:
    calls = [binding.value for block in mod["main"].body.blocks for binding in block.bindings]
    return [op_name(call) for call in calls if isinstance(call, relax.Call)]
