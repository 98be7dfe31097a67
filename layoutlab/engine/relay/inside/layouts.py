"""Layouts of convolutions: TVM's ConvertLayout, and a layout hook's answers carried out by TVM's AlterOpLayout.

A hook's answers are applied before tasks are extracted, in a pass of its own: extraction never runs AlterOpLayout,
so what a hook changed within the build would have no records. The build then finds nothing left to alter.
"""

import contextlib

import tvm
from tvm import relay

from .compat import completed
from .convs import describe_conv, find_convs, shape_of
from .refused import Refused

_BLOCK = "NCHW"
_HOOK = "FTVMAlterOpLayout"


def convert_layout(mod, layout):
    """ConvertLayout of every convolution to NCHW or NHWC, with what it does to weights folded away."""
    passes = [
        relay.transform.RemoveUnusedFunctions(),
        relay.transform.ConvertLayout({"nn.conv2d": [layout, "default"]}),
        relay.transform.FoldConstant(),
        relay.transform.InferType(),
    ]
    with tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(passes)(mod)


def list_convs(mod, numbers):
    """Every convolution as the data that layoutlab's hooks see, with these numbers, in the order in which TVM asks."""
    calls = find_convs(mod)
    if len(calls) != len(numbers):
        raise Refused("layout", "ConvertLayout made %d convolutions of %d" % (len(calls), len(numbers)))
    return [describe_conv(number, call) for number, call in zip(numbers, calls)]


def alter_layouts(mod, target, decisions):
    """Give each convolution the layout of its decision: (data, kernel, out) as layoutlab writes them, or None: keep.

    Raises Refused when TVM does not ask for the convolutions in the order in which they were listed.
    """
    applied = _Decided(find_convs(mod), decisions)
    passes = [
        # As in TVM's own build: a bias_add has no layout in blocks, the addition it stands for has.
        relay.transform.CanonicalizeOps(),
        relay.transform.AlterOpLayout(),
        relay.transform.FoldConstant(),
        relay.transform.InferType(),
    ]
    with target, overridden(applied), tvm.transform.PassContext(opt_level=3):
        altered = tvm.transform.Sequential(passes)(mod)
    applied.require_all_asked()
    return altered


def kept():
    """While this context lasts, TVM leaves the layouts of convolutions as they are."""
    return overridden(lambda attrs, inputs, types, out_type: None)


@contextlib.contextmanager
def overridden(hook):
    """While this context lasts, `hook` decides: what TVM calls FTVMAlterOpLayout of nn.conv2d."""
    conv = relay.op.get("nn.conv2d")
    usual = conv.get_attr(_HOOK)
    conv.reset_attr(_HOOK)
    conv.set_attr(_HOOK, hook)
    try:
        yield
    finally:
        conv.reset_attr(_HOOK)
        if usual is not None:
            conv.set_attr(_HOOK, usual)


def stock():
    """While this context lasts, TVM's own hook decides."""
    return completed()


class _Decided:
    """The hook that TVM asks for one convolution after the other."""

    def __init__(self, calls, decisions):
        # Shapes now: once TVM works on the module, types of its calls are no longer there.
        self._expected = [(shape_of(call.args[0]), shape_of(call.args[1])) for call in calls]
        self._decisions = decisions
        self._asked = 0

    def __call__(self, attrs, inputs, types, out_type):
        index = self._asked
        self._asked += 1
        shapes = tuple([int(extent) for extent in each.shape] for each in types[:2])
        if index >= len(self._expected) or shapes != self._expected[index]:
            raise Refused("layout", "TVM asks for convolutions in another order than that in which they run")
        decision = self._decisions[index]
        return None if decision is None else _conv_in(decision, attrs, inputs, types)

    def require_all_asked(self):
        if self._asked != len(self._expected):
            message = "TVM asked for %d of %d convolutions" % (self._asked, len(self._expected))
            raise Refused("layout", message)


def _conv_in(decision, attrs, inputs, types):
    """The convolution with the layouts of a decision; TVM puts the transforms around it."""
    data, kernel, out = decision
    kept_attrs = {name: attrs[name] for name in ("strides", "padding", "dilation", "groups", "channels")}
    kept_attrs["kernel_size"] = attrs["kernel_size"]
    kept_attrs["out_dtype"] = attrs["out_dtype"]
    layouts = {"data_layout": data, "kernel_layout": kernel, "out_layout": out}
    if not data.endswith("c"):
        return relay.nn.conv2d(inputs[0], inputs[1], **kept_attrs, **layouts)
    block_in, block_out = data[len(_BLOCK) : -1], out[len(_BLOCK) : -1]
    if int(attrs["groups"]) > 1:
        layouts["kernel_layout"] = "OIHW1i%so" % block_out
        return relay.nn.contrib_depthwise_conv2d_nchwc(inputs[0], inputs[1], **kept_attrs, **layouts)
    layouts["kernel_layout"] = "OIHW%si%so" % (block_in, block_out)
    return relay.nn.contrib_conv2d_nchwc(inputs[0], inputs[1], **kept_attrs, **layouts)
