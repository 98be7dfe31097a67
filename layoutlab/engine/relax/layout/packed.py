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


def group_conv2d_nchwc(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> te.Tensor:
    """Grouped convolution of `data` [N, C/a, H, W, a] with `kernel` [O/b, C/groups, KH, KW, b] to [N, O/b, OH, OW, b].

    Groups need not begin at blocks, so each input channel is looked up: right for every number of groups, depthwise
    with a multiplier included, but with less to vectorise than the two computes above.
    """
    batch, _, _, _, in_inner = _extents(data)
    out_outer, group_in, kernel_h, kernel_w, out_inner = _extents(kernel)
    group_out = out_outer * out_inner // groups
    padded = _pad(data, padding)
    out_h, out_w = _output_size(data, kernel, strides, padding, dilation)
    ic = te.reduce_axis((0, group_in), "ic")
    kh, kw = te.reduce_axis((0, kernel_h), "kh"), te.reduce_axis((0, kernel_w), "kw")

    def product(n, oc_outer, oh, ow, oc_inner):  # type: ignore[no-untyped-def]  # TVM expressions
        channel = (oc_outer * out_inner + oc_inner) // group_out * group_in + ic
        row, column = oh * strides[0] + kh * dilation[0], ow * strides[1] + kw * dilation[1]
        return te.sum(
            padded[n, channel // in_inner, row, column, channel % in_inner] * kernel[oc_outer, ic, kh, kw, oc_inner],
            axis=[ic, kh, kw],
        )

    return te.compute((batch, out_outer, out_h, out_w, out_inner), product, name="group_conv2d_NCHWc")


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
    groups = int(attrs.groups)
    strides, padding, dilation = (
        tuple(int(v) for v in values) for values in (attrs.strides, attrs.padding, attrs.dilation)
    )
    if groups == 1:
        return builder.call_te(conv2d_nchwc, *call.args, strides, padding, dilation, primfunc_name_hint="conv2d_NCHWc")
    if _is_plain_depthwise(call):
        return builder.call_te(
            depthwise_conv2d_nchwc, *call.args, strides, padding, dilation, primfunc_name_hint="depthwise_conv2d_NCHWc"
        )
    return builder.call_te(
        group_conv2d_nchwc, *call.args, strides, padding, dilation, groups, primfunc_name_hint="group_conv2d_NCHWc"
    )


def _is_plain_depthwise(call: relax.Call) -> bool:
    """One input and one output channel in each group, and the same blocks on both sides."""
    _, outer, _, _, inner = (int(extent) for extent in call.args[0].ty.shape)
    out_outer, _, _, _, out_inner = (int(extent) for extent in call.args[1].ty.shape)
    return (outer, inner) == (out_outer, out_inner) and int(call.attrs.groups) == outer * inner
