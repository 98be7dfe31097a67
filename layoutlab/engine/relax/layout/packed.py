"""Convolutions on packed layouts (NCHWc), which TVM 0.27 can express but not lower.

`relax.nn.conv2d` accepts `NCHW8c`, but LegalizeOps leaves it alone (an info log, nothing else) and TOPI's
packed depthwise convolution is an unregistered stub: the computes and their legalisation are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax, te, topi
from tvm.relax.transform.legalize_ops.nn import _nn_conv2d as legalize_plain_conv2d


def conv2d_nchwc(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> te.Tensor:
    """Convolution of `data` [N, C/a, H, W, a] with `kernel` [O/b, C, KH, KW, b] to [N, O/b, OH, OW, b].

    `padding` is (top, left, bottom, right).
    """
    batch, in_outer, _, _, in_inner = _extents(data)
    out_outer, _, kernel_h, kernel_w, out_inner = _extents(kernel)
    padded = _pad(data, padding)
    out_h, out_w = _output_size(data, kernel, strides, padding, dilation)
    ic_outer = te.reduce_axis((0, in_outer), "ic_outer")
    ic_inner = te.reduce_axis((0, in_inner), "ic_inner")
    kh, kw = te.reduce_axis((0, kernel_h), "kh"), te.reduce_axis((0, kernel_w), "kw")
    return te.compute(
        (batch, out_outer, out_h, out_w, out_inner),
        lambda n, oc_outer, oh, ow, oc_inner: te.sum(
            padded[n, ic_outer, oh * strides[0] + kh * dilation[0], ow * strides[1] + kw * dilation[1], ic_inner]
            * kernel[oc_outer, ic_outer * in_inner + ic_inner, kh, kw, oc_inner],
            axis=[ic_outer, kh, kw, ic_inner],
        ),
        name="conv2d_NCHWc",
    )


def depthwise_conv2d_nchwc(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> te.Tensor:
    """Depthwise convolution (multiplier 1) of `data` [N, C/b, H, W, b] with `kernel` [C/b, 1, KH, KW, b]."""
    batch, outer, _, _, inner = _extents(data)
    _, _, kernel_h, kernel_w, _ = _extents(kernel)
    padded = _pad(data, padding)
    out_h, out_w = _output_size(data, kernel, strides, padding, dilation)
    kh, kw = te.reduce_axis((0, kernel_h), "kh"), te.reduce_axis((0, kernel_w), "kw")
    return te.compute(
        (batch, outer, out_h, out_w, inner),
        lambda n, c_outer, oh, ow, c_inner: te.sum(
            padded[n, c_outer, oh * strides[0] + kh * dilation[0], ow * strides[1] + kw * dilation[1], c_inner]
            * kernel[c_outer, 0, kh, kw, c_inner],
            axis=[kh, kw],
        ),
        name="depthwise_conv2d_NCHWc",
    )


def _extents(tensor: te.Tensor) -> list[int]:
    return [int(extent) for extent in tensor.shape]


def _pad(data: te.Tensor, padding: Sequence[int]) -> te.Tensor:
    top, left, bottom, right = padding
    if not any(padding):
        return data
    return topi.nn.pad(data, (0, 0, top, left, 0), (0, 0, bottom, right, 0), name="pad_temp")


def _output_size(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, int]:
    top, left, bottom, right = padding
    _, _, height, width, _ = _extents(data)
    _, _, kernel_h, kernel_w, _ = _extents(kernel)
    return (
        (height + top + bottom - (kernel_h - 1) * dilation[0] - 1) // strides[0] + 1,
        (width + left + right - (kernel_w - 1) * dilation[1] - 1) // strides[1] + 1,
    )


def legalize_conv2d(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """LegalizeOps entry for `relax.nn.conv2d`: packed layouts to the computes above, the rest to TVM's own."""
    attrs = call.attrs
    if len(attrs.data_layout) == 4:
        return legalize_plain_conv2d(builder, call)
    depthwise = int(attrs.groups) > 1
    return builder.call_te(
        depthwise_conv2d_nchwc if depthwise else conv2d_nchwc,
        call.args[0],
        call.args[1],
        *(tuple(int(v) for v in values) for values in (attrs.strides, attrs.padding, attrs.dilation)),
        primfunc_name_hint="depthwise_conv2d_NCHWc" if depthwise else "conv2d_NCHWc",
    )
