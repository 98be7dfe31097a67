"""What a tuning task computes, from the blocks of its TIR."""

from __future__ import annotations

from layoutlab.engine.relax.tvm_cpu import tvm

# A part of a block's name -> the kind of a task that has such a block. The first that is found decides, so that a
# convolution with a padding and an activation fused into it is a convolution.
_KINDS = {
    "depthwise_conv2d": "depthwise_conv2d",
    "group_conv2d": "group_conv2d",
    "conv2d": "conv2d",
    "matmul": "matmul",
    "pool_": "pool2d",
    "softmax": "softmax",
    "resize": "resize2d",
    "_red": "reduce",
    "layout_transform": "layout_transform",
    "T_transpose": "layout_transform",
}
_OTHER = "elementwise"
KINDS = (*dict.fromkeys(_KINDS.values()), _OTHER)


def task_kind(mod: tvm.IRModule) -> str:
    """The kind of a task's module, one of KINDS."""
    schedule = tvm.s_tir.Schedule(mod)
    blocks = [str(schedule.get(block).name_hint) for block in schedule.get_child_blocks(schedule.get_sblock("root"))]
    return next((kind for part, kind in _KINDS.items() if any(part in block for block in blocks)), _OTHER)
