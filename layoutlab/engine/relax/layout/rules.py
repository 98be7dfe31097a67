"""How single operators are written for tensors that are not stored as they were imported.

A rule is `rule(graph, call) -> (new call, storage of its result) | None`; None means that the operator needs its
tensors as they were imported. Rules ask the graph for their operands in the storage they want.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from layoutlab.engine.relax.layout.canonicalise import BINARY, is_constant
from layoutlab.engine.relax.layout.plan import Decision, static_shape
from layoutlab.engine.relax.layout.storage import Storage
from layoutlab.hooks import Conv

if TYPE_CHECKING:
    from layoutlab.engine.relax.layout.propagate import Graph

Made = tuple[relax.Expr, Storage] | None

_UNARY = frozenset(
    """abs astype ceil clip cos erf exp floor log negative nn.gelu nn.leakyrelu nn.relu nn.silu round rsqrt sigmoid sign
    sin sqrt square tanh""".split()  # noqa: SIM905 - one name a word reads better than a page of quotes
)
_REDUCTIONS = frozenset({"mean", "sum", "max", "min", "prod"})


# Operators that make finite values of the zeros in padded channels, and of each other's results. Anything else could
# put an infinity there, and the next convolution would multiply it by a zero weight to NaN.
_SAFE_ON_PADDING = frozenset(
    {"abs", "add", "ceil", "clip", "floor", "maximum", "minimum", "multiply", "negative", "nn.leakyrelu", "nn.relu"}
    | {"round", "sigmoid", "sign", "subtract", "tanh", "quantize", "dequantize"}
)


def apply(graph: Graph, call: relax.Call, name: str, decision: Decision | None) -> Made:
    """The call written for its operands' storage, by the rule for its operator; None when there is none."""
    if decision is not None:
        return _conv2d(graph, call, decision)
    if name in _UNARY:
        return _unary(graph, call, name)
    if name in BINARY:
        return _binary(graph, call, name)
    if name in _REDUCTIONS:
        return _reduction(graph, call, name)
    rule = _RULES.get(name)
    return rule(graph, call, name) if rule else None


def _conv2d(graph: Graph, call: relax.Call, decision: Decision) -> Made:
    conv, layout = decision.conv, decision.layout
    data = Storage.from_layout(layout.data, conv.data_layout, layout.pad).for_shape(conv.data_shape)
    out = Storage.from_layout(layout.out, conv.out_layout, layout.pad).for_shape(conv.out_shape)
    kernel, groups = call.args[1], conv.groups
    if data.padded(conv.data_shape) or out.padded(conv.out_shape):
        kernel = _padded_kernel(kernel, conv, data, out)
        groups = groups if groups == 1 else math.prod(_channels(out, conv.out_shape))
    made = relax.op.nn.conv2d(
        graph.get(call.args[0], data, "nn.conv2d"),
        graph.get(kernel, Storage.from_layout(layout.kernel, conv.kernel_layout), "nn.conv2d"),
        strides=conv.strides,
        padding=conv.padding,
        dilation=conv.dilation,
        groups=groups,
        data_layout=layout.data,
        kernel_layout=layout.kernel,
        out_layout=layout.out,
        out_dtype=call.attrs.out_dtype,
    )
    return made, out


def _channels(storage: Storage, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Extents of the stored positions of the split axis."""
    assert storage.split is not None
    stored = storage.shape(shape)
    return tuple(stored[position] for position in storage.positions(storage.split))


def _padded_kernel(kernel: relax.Expr, conv: Conv, data: Storage, out: Storage) -> relax.Expr:
    """The kernel with zeros for padded channels: what stands in them never reaches a real output."""
    value = kernel.value.numpy()
    wanted = {"O": math.prod(_channels(out, conv.out_shape))}
    if conv.groups == 1:
        wanted["I"] = math.prod(_channels(data, conv.data_shape))
    widths = [
        (0, wanted.get(axis, extent) - extent) for axis, extent in zip(conv.kernel_layout, value.shape, strict=True)
    ]
    return relax.const(np.pad(value, widths), str(kernel.ty.dtype))


def _unary(graph: Graph, call: relax.Call, name: str) -> Made:
    storage = graph.storage(call.args[0])
    if storage.pad and name not in _SAFE_ON_PADDING:
        return None
    operand = graph.get(call.args[0], storage, name)
    return relax.Call(call.op, [operand, *call.args[1:]], call.attrs, call.ty_args), storage


def _binary(graph: Graph, call: relax.Call, name: str) -> Made:
    result = static_shape(call)
    storage = _common(graph, list(call.args), result)
    if storage is None or (storage.pad and not _is_safe_on_padding(call, name)):
        return None
    operands = []
    for operand in call.args:
        shape = static_shape(operand)
        operands.append(operand if not shape else graph.get(operand, storage.for_shape(shape), name))
    return relax.Call(call.op, operands, call.attrs, call.ty_args), storage.for_shape(result)


def _is_safe_on_padding(call: relax.Call, name: str) -> bool:
    by_scalar = is_constant(call.args[1]) and not static_shape(call.args[1])
    return name in _SAFE_ON_PADDING or (name == "divide" and by_scalar)


def _common(graph: Graph, operands: list[relax.Expr], result: tuple[int, ...]) -> Storage | None:
    """The storage in which operands that broadcast to `result` meet: the one for which fewest bytes move.

    Scalars meet in any. None when an operand of another rank would have to be moved.
    """
    tensors = [operand for operand in operands if static_shape(operand)]
    if any(len(static_shape(operand)) != len(result) for operand in tensors):
        return None
    candidates = [graph.storage(operand) for operand in tensors if not is_constant(operand)]
    # An operand that broadcasts along the split axis says nothing about its blocks.
    usable = [s for s in candidates if s.fits(result) and s == s.for_shape(result) and not _is_degenerate(s, result)]
    usable = usable or [Storage.plain(len(result))]
    return min(usable, key=lambda storage: (_moved(graph, tensors, storage), storage.is_plain))


def _moved(graph: Graph, operands: list[relax.Expr], storage: Storage) -> int:
    """Elements of the operands that are stored otherwise; constants are rewritten at compile time and do not count."""
    shapes = [(operand, static_shape(operand)) for operand in operands if not is_constant(operand)]
    return sum(math.prod(shape) for operand, shape in shapes if graph.storage(operand) != storage.for_shape(shape))


def _is_degenerate(storage: Storage, shape: tuple[int, ...]) -> bool:
    return storage.split is not None and storage.block == 1 and shape[storage.split] != 1


def _reduction(graph: Graph, call: relax.Call, name: str) -> Made:
    shape = static_shape(call.args[0])
    storage = graph.storage(call.args[0])
    axes = call.attrs.axis
    logical = {int(axis) % len(shape) for axis in (range(len(shape)) if axes is None else axes)}
    if storage.pad and storage.split in logical:
        return None
    stored = sorted(position for axis in logical for position in storage.positions(axis))
    operand = graph.get(call.args[0], storage, name)
    made = getattr(relax.op, name)(operand, axis=stored, keepdims=bool(call.attrs.keepdims))
    if not call.attrs.keepdims:
        return made, storage.without(logical)
    return made, storage.for_shape(static_shape(call))


def _pad(graph: Graph, call: relax.Call, name: str) -> Made:
    storage = graph.storage(call.args[0])
    widths = [int(width) for width in call.attrs.pad_width]
    pairs = [(widths[2 * axis], widths[2 * axis + 1]) for axis in range(len(storage.order))]
    if storage.split is not None and any(pairs[storage.split]) and not _keeps_blocks(pairs[storage.split], storage):
        return None
    stored: list[int] = []
    for axis in storage.order:
        stored += [width // storage.block for width in pairs[axis]] if axis == storage.split else pairs[axis]
    stored += [0, 0] if storage.split is not None else []
    operand = graph.get(call.args[0], storage, name)
    return relax.op.nn.pad(operand, stored, call.attrs.pad_mode, call.attrs.pad_value), storage


def _keeps_blocks(widths: tuple[int, int], storage: Storage) -> bool:
    return not storage.pad and not any(width % storage.block for width in widths)


def _pool(graph: Graph, call: relax.Call, name: str) -> Made:
    attrs = call.attrs
    storage = graph.storage(call.args[0])
    layout = storage.layout(str(attrs.layout))
    options = {} if name == "nn.max_pool2d" else {"count_include_pad": bool(attrs.count_include_pad)}
    made = getattr(relax.op.nn, name.removeprefix("nn."))(
        graph.get(call.args[0], storage, name),
        pool_size=[int(v) for v in attrs.pool_size],
        strides=[int(v) for v in attrs.strides],
        padding=[int(v) for v in attrs.padding],
        dilation=[int(v) for v in attrs.dilation],
        ceil_mode=bool(attrs.ceil_mode),
        layout=layout,
        out_layout=layout,
        **options,
    )
    return made, storage


def _softmax(graph: Graph, call: relax.Call, name: str) -> Made:
    storage = graph.storage(call.args[0])
    positions = storage.positions(int(call.attrs.axis) % len(storage.order))
    if len(positions) > 1:
        return None
    return relax.op.nn.softmax(graph.get(call.args[0], storage, name), axis=positions[0]), storage


def _resize(graph: Graph, call: relax.Call, name: str) -> Made:
    storage = graph.storage(call.args[0])
    attrs = call.attrs
    made = relax.op.image.resize2d(
        graph.get(call.args[0], storage, name),
        call.args[1],
        roi=[float(v) for v in attrs.roi],
        layout=storage.layout(str(attrs.layout)),
        method=attrs.method,
        coordinate_transformation_mode=attrs.coordinate_transformation_mode,
        rounding_method=attrs.rounding_method,
        cubic_alpha=float(attrs.cubic_alpha),
        cubic_exclude=int(attrs.cubic_exclude),
        extrapolation_value=float(attrs.extrapolation_value),
        out_dtype=attrs.out_dtype or None,
    )
    return made, storage


def _quantize(graph: Graph, call: relax.Call, name: str) -> Made:
    """quantize and dequantize with one scale for the whole tensor; with a scale per channel they stay as imported."""
    if any(math.prod(static_shape(parameter)) != 1 for parameter in call.args[1:]):
        return None
    return _unary(graph, call, name)


def _concat(graph: Graph, call: relax.Call, name: str) -> Made:
    fields = graph.fields(call.args[0])
    if fields is None:
        return None
    shapes = [static_shape(field) for field in fields]
    result = static_shape(call)
    axis = int(call.attrs.axis) % len(result)
    candidates = {graph.storage(field) for field in fields if not is_constant(field)}
    usable = [s for s in candidates if _can_concat(s, shapes, axis) and not _is_degenerate(s, result)]
    if not usable:
        return None
    storage = min(usable, key=lambda s: (_moved(graph, fields, s), s.is_plain, s.order, s.block))
    operands = [graph.get(field, storage, name) for field in fields]
    return relax.op.concat(relax.Tuple(operands), axis=storage.order.index(axis)), storage


def _can_concat(storage: Storage, shapes: list[tuple[int, ...]], axis: int) -> bool:
    """Blocks can only be put one after the other when they are full."""
    if axis == storage.split and any(storage.padded(shape) for shape in shapes):
        return False
    return all(storage.fits(shape) for shape in shapes)


_RULES: dict[str, Callable[[Graph, relax.Call, str], Made]] = {
    "nn.pad": _pad,
    "nn.max_pool2d": _pool,
    "nn.avg_pool2d": _pool,
    "nn.softmax": _softmax,
    "image.resize2d": _resize,
    "concat": _concat,
    "quantize": _quantize,
    "dequantize": _quantize,
}
