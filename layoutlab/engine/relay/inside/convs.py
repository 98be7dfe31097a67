"""The convolutions of a Relay function as plain data, in the order in which they run."""

from tvm import relay

CONVS = ("nn.conv2d", "nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc")
# What TVM's own hook for Arm makes of an NHWC convolution: a matrix product on weights packed at compile time.
GEMM = "nn.contrib_conv2d_gemm_without_weight_transform"
WINOGRAD = ("nn.contrib_conv2d_winograd_without_weight_transform",)
ALL_CONVS = CONVS + (GEMM,) + WINOGRAD


def calls_of(function):
    """Every call of an operator in a function, in post-order, which is the order they run in."""
    found = []

    def visit(expr):
        if isinstance(expr, relay.Call) and hasattr(expr.op, "name"):
            found.append(expr)

    relay.analysis.post_order_visit(function, visit)
    return found


def find_convs(mod):
    """The 2-D convolutions of `main`, in whatever form, in the order they run in."""
    return [call for call in calls_of(mod["main"]) if call.op.name in ALL_CONVS]


def shape_of(expr):
    """The shape of a typed expression, as ints; -1 for what is not known."""
    extents = []
    for extent in expr.checked_type.shape:
        value = getattr(extent, "value", None)
        extents.append(-1 if value is None else int(value))
    return extents


def describe_conv(index, call):
    """A conv2d call as the fields of layoutlab's `hooks.Conv`."""
    attrs = call.attrs
    data, kernel = call.args[0], call.args[1]
    groups = int(attrs.groups)
    return {
        "index": index,
        "op": "nn.conv2d",
        "data_layout": str(attrs.data_layout),
        "kernel_layout": str(attrs.kernel_layout),
        "out_layout": str(attrs.out_layout) or str(attrs.data_layout),
        "data_shape": shape_of(data),
        "kernel_shape": shape_of(kernel),
        "out_shape": shape_of(call),
        "strides": [int(value) for value in attrs.strides],
        "padding": _four([int(value) for value in attrs.padding]),
        "dilation": [int(value) for value in attrs.dilation],
        "groups": groups,
        "dtype": str(data.checked_type.dtype),
        "constant_kernel": isinstance(kernel, relay.Constant),
    }


def _four(padding):
    if len(padding) == 1:
        return padding * 4
    return padding * 2 if len(padding) == 2 else padding


def layout_label(call):
    """How the census names the layout that a convolution really has: `NHWC`, `NCHW3c->NCHW8c`, `NHWC (gemm)`."""
    data = str(call.attrs.data_layout)
    out = str(call.attrs.out_layout) or data
    label = data if data == out else "%s->%s" % (data, out)
    if call.op.name == GEMM:
        return label + " (gemm)"
    return label + " (winograd)" if call.op.name in WINOGRAD else label
