"""Convolutions whose output channels fill whole vectors.

Networks for phones have 24, 40, 72, 120 or 200 channels, which 16 floats do not divide. LLVM splits vectors of such
lengths into scalars, and half a vector costs as much as a whole one. So the kernel, a constant, gets output channels
of zeros, the accumulators stay in registers, and only the channels that exist are stored. XNNPACK packs its weights
the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax, te, topi

from layoutlab.engine.relax.layout.canonicalise import is_constant

# More zeros than this share of the channels cost more than half-filled vectors do.
_MOST_PADDING = 0.34
_CROP = "crop"


def padded_channels(channels: int, floats: int) -> int:
    """The channels of the kernel after padding: `channels` itself where padding would not pay."""
    padded = -(-channels // floats) * floats
    return padded if padded <= channels * (1 + _MOST_PADDING) else channels


def pads_output_channels(call: relax.Call, floats: int) -> bool:
    """Whether this is a plain NHWC convolution whose constant kernel should be padded to whole vectors."""
    attrs, kernel = call.attrs, call.args[1]
    if (str(attrs.data_layout), str(attrs.kernel_layout), int(attrs.groups)) != ("NHWC", "HWIO", 1):
        return False
    if not is_constant(kernel) or str(kernel.ty.dtype) != "float32":
        return False
    channels = int(kernel.ty.shape[3])
    return padded_channels(channels, floats) != channels


def padding_flop(mod: tvm.IRModule) -> int:
    """Floating-point operations that a lowered function spends on the channels of zeros."""
    sch = tvm.s_tir.Schedule(mod)
    blocks = {str(sch.get(name).name_hint): sch.get(name) for name in sch.get_child_blocks(sch.get_sblock("root"))}
    if _CROP not in blocks or "conv2d_nhwc" not in blocks:
        return 0
    extents = [int(axis.dom.extent) for axis in blocks["conv2d_nhwc"].iter_vars]
    kept, wide = int(blocks[_CROP].iter_vars[-1].dom.extent), extents[3]
    return 2 * math.prod(extents) // wide * (wide - kept)


def legalize_padded(builder: relax.BlockBuilder, call: relax.Call, floats: int) -> relax.Expr:
    """The convolution with its kernel padded to whole vectors of `floats`, and its output as it was."""
    attrs, data, kernel = call.attrs, call.args[0], call.args[1].value.numpy()
    channels = kernel.shape[3]
    wide = np.pad(kernel, [(0, 0)] * 3 + [(0, padded_channels(channels, floats) - channels)])
    strides, padding, dilation = (
        tuple(int(v) for v in values) for values in (attrs.strides, attrs.padding, attrs.dilation)
    )
    return builder.call_te(
        _conv2d_nhwc, data, relax.const(wide), channels, strides, padding, dilation, primfunc_name_hint="conv2d"
    )


def _conv2d_nhwc(
    data: te.Tensor,
    kernel: te.Tensor,
    channels: int,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> te.Tensor:
    """Convolution of `data` [N, H, W, I] with `kernel` [KH, KW, I, O] of which the first `channels` outputs count.

    The blocks have the names TVM gives its own.
    """
    wide = topi.nn.conv2d_nhwc(data, kernel, strides, padding, dilation)
    batch, height, width, _ = wide.shape
    return te.compute((batch, height, width, channels), lambda n, h, w, c: wide[n, h, w, c], name=_CROP)
