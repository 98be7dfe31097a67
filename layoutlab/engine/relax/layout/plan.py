"""Which layout each convolution gets: the convolutions of a module as data, and the hook's answers for them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import tvm
from tvm import relax

from layoutlab.engine.relax.layout.canonicalise import is_constant
from layoutlab.errors import StageError
from layoutlab.hooks import Conv, ConvLayout, Hook, Nchwc, Numbered, Table, nchw, nhwc

_CONVERT = {"NHWC": nhwc, "NCHW": nchw}
_PACKED_DATA = re.compile(r"NCHW(\d+)c")
_PACKED_KERNEL = re.compile(r"OIHW(\d+)o")
_PLAIN_DATA = {"NHWC", "NCHW"}
_PLAIN_KERNEL = {"HWIO", "HWOI", "OIHW", "OHWI"}


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What was asked for one convolution: `answer` is the hook's (None: keep), `layout` what follows from it.

    `why` says in a few words what led to the layout.
    """

    conv: Conv
    answer: ConvLayout | None
    layout: ConvLayout
    why: str

    @property
    def changes(self) -> bool:
        """Whether the convolution's data or output layout is to change from what the model has."""
        return self.layout != self.conv.layout


def find_convs(mod: tvm.IRModule) -> list[tuple[relax.Var, relax.Call]]:
    """The conv2d bindings of `main`, in execution order."""
    found = []
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if isinstance(value, relax.Call) and op_name(value) == "nn.conv2d":
                found.append((binding.var, value))
    return found


def op_name(call: relax.Call) -> str:
    """The operator's name without `relax.`, or the name of the function that is called."""
    name = getattr(call.op, "name", None) or getattr(call.op, "name_hint", "call")
    return str(name).removeprefix("relax.")


def describe_conv(index: int, call: relax.Call) -> Conv:
    """A conv2d call as the plain data that hooks see."""
    attrs = call.attrs
    strides, padding, dilation = (tuple(int(v) for v in x) for x in (attrs.strides, attrs.padding, attrs.dilation))
    return Conv(
        index=index,
        op="nn.conv2d",
        data_layout=str(attrs.data_layout),
        kernel_layout=str(attrs.kernel_layout),
        out_layout=str(attrs.out_layout),
        data_shape=static_shape(call.args[0]),
        kernel_shape=static_shape(call.args[1]),
        out_shape=static_shape(call),
        strides=strides,  # type: ignore[arg-type]  # Relax normalises to two, four and two entries
        padding=padding,  # type: ignore[arg-type]
        dilation=dilation,  # type: ignore[arg-type]
        groups=int(attrs.groups),
        dtype=str(call.args[0].ty.dtype),
        constant_kernel=is_constant(call.args[1]),
    )


def static_shape(expr: relax.Expr) -> tuple[int, ...]:
    """The shape as ints. Raises StageError("layout") when a dimension is symbolic."""
    try:
        return tuple(int(extent) for extent in expr.ty.shape)
    except (TypeError, ValueError) as error:
        raise StageError("layout", f"shape {expr.ty.shape} is not static; bind every dimension") from error


def plan(mod: tvm.IRModule, convert_layout: str | None, hook: Hook | None) -> list[Decision]:
    """Ask for every convolution: first `convert_layout`, then the hook, which sees the converted convolution.

    Both are decided here as data and applied in one ConvertLayout pass, so that nothing is transposed twice.
    Raises StageError("layout") when the hook raises, or answers with something that has no kernel.
    """
    return [
        _decide(describe_conv(index, call), convert_layout, hook) for index, (_, call) in enumerate(find_convs(mod))
    ]


def _decide(conv: Conv, convert_layout: str | None, hook: Hook | None) -> Decision:
    converted = conv
    if convert_layout is not None and conv.data_layout != convert_layout:
        asked = _CONVERT[convert_layout](conv)
        assert asked is not None
        converted = _in_layout(conv, asked)
    answer = _ask(hook, converted) if hook is not None else None
    layout = answer if answer is not None else converted.layout
    _check_supported(conv, layout)
    return Decision(conv=conv, answer=answer, layout=layout, why=_why(converted, convert_layout, hook, answer))


def _why(conv: Conv, convert_layout: str | None, hook: Hook | None, answer: ConvLayout | None) -> str:
    """What decided: the hook, by its answer or its reason for giving none, and convert_layout before it."""
    before = f"convert_layout: {convert_layout}" if convert_layout else "as imported"
    if hook is None:
        return before
    if answer is not None:
        return "the hook, with padded channels" if answer.pad else "the hook"
    reason = hook.why_kept(conv) if isinstance(hook, Nchwc | Table | Numbered) else ""
    return f"kept by the hook{': ' + reason if reason else ''}; {before}"


def _ask(hook: Hook, conv: Conv) -> ConvLayout | None:
    try:
        answer = hook(conv)
    except Exception as error:
        raise StageError("layout", f"the hook raised {type(error).__name__} at conv {conv.index}: {error}") from error
    if answer is not None and not isinstance(answer, ConvLayout):
        raise StageError("layout", f"the hook answered {answer!r} at conv {conv.index}: expected a ConvLayout or None")
    return answer


def _in_layout(conv: Conv, layout: ConvLayout) -> Conv:
    """The same convolution with its axes in another plain (unblocked) order."""

    def permute(shape: tuple[int, ...], source: str, target: str) -> tuple[int, ...]:
        return tuple(shape[source.index(axis)] for axis in target)

    return replace(
        conv,
        data_layout=layout.data,
        kernel_layout=layout.kernel,
        out_layout=layout.out,
        data_shape=permute(conv.data_shape, conv.data_layout, layout.data),
        kernel_shape=permute(conv.kernel_shape, conv.kernel_layout, layout.kernel),
        out_shape=permute(conv.out_shape, conv.out_layout, layout.out),
    )


def _check_supported(conv: Conv, layout: ConvLayout) -> None:
    """Raise unless some kernel computes this convolution in this layout."""
    reason = _unsupported(conv, layout)
    if reason:
        raise StageError(
            "layout",
            f"conv {conv.index} cannot run as data {layout.data}, kernel {layout.kernel}, out {layout.out}: {reason}",
        )


def _unsupported(conv: Conv, layout: ConvLayout) -> str:
    if layout.data in _PLAIN_DATA:
        if layout.out != layout.data or layout.kernel not in _PLAIN_KERNEL:
            return "a plain convolution needs equal data and out layouts and a four-letter kernel layout"
        return ""
    data, kernel, out = (
        _PACKED_DATA.fullmatch(layout.data),
        _PACKED_KERNEL.fullmatch(layout.kernel),
        _PACKED_DATA.fullmatch(layout.out),
    )
    if not (data and kernel and out and kernel[1] == out[1]):
        return "expected NHWC, NCHW, or data NCHW<a>c with kernel OIHW<b>o and out NCHW<b>c"
    in_block, out_block = int(data[1]), int(out[1])
    whole = conv.in_channels % in_block == 0 and conv.out_channels % out_block == 0
    if whole:
        return ""
    if not layout.pad:
        return f"{conv.in_channels} input and {conv.out_channels} output channels do not divide into these blocks"
    if conv.out_channels == 1:
        return "a single output channel cannot be padded"
    if conv.groups > 1 and not (conv.is_depthwise and conv.out_channels == conv.in_channels and in_block == out_block):
        return "the channels of a grouped convolution cannot be padded"
    return ""
