"""What a lowered function computes, and on which data layout, told from its TIR."""

from __future__ import annotations

import re
from typing import Any

from layoutlab.engine.relax.tvm_cpu import tvm

# The kind of a function is the first of these that any of its blocks is named after: TVM's and our own computes name
# their blocks, and fusing keeps the names.
_KINDS = (
    ("conv2d_transpose", r"conv2d_transpose|data_dilate"),
    ("conv2d", r"conv2d"),
    ("matmul", r"matmul|dense"),
    ("softmax", r"softmax"),
    ("pool2d", r"pool"),
    ("resize2d", r"resize"),
    ("layout_transform", r"layout_transform"),
    ("concatenate", r"concat"),
    ("transpose", r"transpose"),
    ("strided_slice", r"strided_slice"),
    ("pad", r"pad"),
)
KINDS = (
    *(kind for kind, _ in _KINDS),
    *("depthwise_conv2d", "group_conv2d", "mean", "reduction", "reshape", "elementwise"),
)
# By rank and the axes that a window moves over.
_POOL_LAYOUTS: dict[tuple[int, tuple[int, ...]], str] = {
    (4, (1, 2)): "NHWC",
    (4, (2, 3)): "NCHW",
    (5, (2, 3)): "NCHW{}c",
}


def task_kind(function: tvm.tirx.PrimFunc) -> tuple[str, str | None]:
    """What an unscheduled function computes ("conv2d", "depthwise_conv2d", "pool2d", ...), and on which layout.

    A function in which others were fused has the kind of the heaviest: a convolution with its addition and activation
    is a convolution. What is none of the known kinds is "mean", "reduction", "reshape" or "elementwise". The layout
    ("NHWC", "NCHW", "NCHW8c", "NCHW3c->NCHW8c") is that of convolutions and pools, None for all others.
    """
    blocks = _blocks(function)
    for kind, pattern in _KINDS:
        named = [block for block in blocks if re.search(pattern, str(block.name_hint), re.IGNORECASE)]
        if named and kind == "conv2d":
            return _conv_kind(named[0]), _conv_layout(named[0])
        if named:
            return kind, _pool_layout(named) if kind == "pool2d" else None
    return _plain_kind(blocks), None


def _blocks(function: tvm.tirx.PrimFunc) -> list[Any]:
    schedule = tvm.s_tir.Schedule(function)
    names = schedule.get_child_blocks(schedule.get_sblock("root"))
    return [schedule.get(name) for name in names]


def _plain_kind(blocks: list[Any]) -> str:
    names = [str(block.name_hint) for block in blocks]
    if any(_reduced(block) for block in blocks):
        is_mean = any(name.endswith("_red") for name in names) and "T_divide" in names
        return "mean" if is_mean else "reduction"
    return "reshape" if all("reshape" in name for name in names) else "elementwise"


def _reduced(block: Any) -> dict[str, int]:
    """Extents of the axes that a block sums over, by name."""
    reduction = tvm.tirx.IterVar.CommReduce
    return {
        str(axis.var.name).removeprefix("v_"): int(axis.dom.extent)
        for axis in block.iter_vars
        if axis.iter_type == reduction
    }


def _conv_kind(block: Any) -> str:
    name = str(block.name_hint).lower()
    if "depthwise" in name:
        return "depthwise_conv2d"
    if not name.startswith("group"):
        return "conv2d"
    # TVM writes a depthwise convolution as a grouped one, with one channel to sum over in each group.
    channels = [extent for axis, extent in _reduced(block).items() if axis.startswith(("rc", "ic"))]
    return "depthwise_conv2d" if all(extent == 1 for extent in channels) else "group_conv2d"


def _conv_layout(block: Any) -> str | None:
    name = str(block.name_hint)
    if "NCHWc" not in name:
        return next((layout for layout in ("NHWC", "NCHW") if layout.lower() in name), None)
    data, out = (f"NCHW{int(region.source.shape[-1])}c" for region in (block.reads[0], block.writes[0]))
    return out if data == out else f"{data}->{out}"


def _pool_layout(blocks: list[Any]) -> str | None:
    """From the axes that the window moves over."""
    for block in blocks:
        window = {axis.var for axis in block.iter_vars if axis.iter_type == tvm.tirx.IterVar.CommReduce}
        region = block.reads[0].region
        moved = tuple(
            number
            for number, extent in enumerate(region)
            if any(var in window for var in tvm.tirx.analysis.undefined_vars(extent.min))
        )
        if moved:
            layout = _POOL_LAYOUTS.get((len(region), moved))
            return layout and layout.format(int(block.reads[0].source.shape[-1]))
    return None
