"""Small random graphs of the operators that convolutional networks are made of, and what they compute.

A graph is plain data, a list of steps, so that hypothesis can shrink it and print it. `build` makes a Relax module
from it, in TFLite's layouts, and at the same time computes its outputs with numpy, by the operators' definitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tvm import relax

CHANNELS = st.sampled_from([1, 2, 3, 4, 6, 8, 10, 12, 16])
PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3))
PADDING = st.tuples(*[st.integers(0, 2)] * 4)
KINDS = [
    "conv",
    "depthwise",
    "grouped",
    "bias",
    "constant",
    "relu",
    "clip",
    "sigmoid",
    "hard_swish",
    "prelu",
    "max_pool",
    "avg_pool",
    "pad",
    "residual",
    "concat",
    "squeeze",
    "resize",
    "softmax",
    "mean",
]


@dataclass(frozen=True)
class Step:
    """One step: its kind, and numbers that it takes its attributes from, whatever the shape it meets."""

    kind: str
    channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]
    choice: int


@st.composite
def graphs(draw: Any) -> tuple[tuple[int, int, int], list[Step], int]:
    """(height, width, channels) of the input, steps, and a seed for all values."""
    shape = draw(st.tuples(st.integers(3, 9), st.integers(3, 9), CHANNELS))
    step = st.builds(
        Step,
        kind=st.sampled_from(KINDS),
        channels=CHANNELS,
        kernel=PAIR,
        strides=st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 2)]),
        dilation=st.sampled_from([(1, 1), (1, 1), (2, 1), (2, 2)]),
        padding=PADDING,
        choice=st.integers(0, 11),
    )
    return shape, draw(st.lists(step, min_size=2, max_size=7)), draw(st.integers(0, 2**32 - 1))


@dataclass
class Tensor:
    """A value of the graph: its Relax variable, and what it holds."""

    var: relax.Expr
    value: np.ndarray


class Builder:
    """Adds one operator at a time to a Relax function and to the numpy values beside it."""

    def __init__(self, seed: int) -> None:
        self.relax = relax.BlockBuilder()
        self.rng = np.random.default_rng(seed)

    def random(self, *shape: int) -> np.ndarray:
        return self.rng.normal(size=shape).astype("float32")

    def emit(self, expr: relax.Expr, value: np.ndarray) -> Tensor:
        return Tensor(self.relax.emit(expr), value.astype("float32"))

    def conv(self, x: Tensor, step: Step, out: int, groups: int, kernel: tuple[int, int] | None = None) -> Tensor:
        """A convolution whose window fits: padding grows until it does."""
        taps = kernel or step.kernel
        padding = (0, 0, 0, 0) if kernel else fitting(x.value.shape, taps, step.dilation, step.padding)
        channels = x.value.shape[3]
        depthwise = groups > 1 and groups == channels
        weights = self.random(*taps, channels // groups, out) / np.sqrt(taps[0] * taps[1] * channels / groups)
        # TFLite's importer gives depthwise kernels as HWOI.
        stored = weights.transpose(0, 1, 3, 2) if depthwise else weights
        expr = relax.op.nn.conv2d(
            x.var,
            relax.const(np.ascontiguousarray(stored)),
            strides=step.strides,
            padding=padding,
            dilation=step.dilation,
            groups=groups,
            data_layout="NHWC",
            kernel_layout="HWOI" if depthwise else "HWIO",
            out_layout="NHWC",
        )
        return self.emit(expr, convolve(x.value, weights, step.strides, padding, step.dilation, groups))


def fitting(shape: tuple[int, ...], taps: Any, dilation: Any, padding: Any) -> tuple[int, int, int, int]:
    top, left, bottom, right = padding
    need_h = (taps[0] - 1) * dilation[0] + 1 - shape[1] - top - bottom
    need_w = (taps[1] - 1) * dilation[1] + 1 - shape[2] - left - right
    return top, left, bottom + max(0, need_h), right + max(0, need_w)


def windows(x: np.ndarray, taps: Any, strides: Any, dilation: Any) -> np.ndarray:
    """[N, OH, OW, KH, KW, C]: what each output position sees."""
    out_h = (x.shape[1] - (taps[0] - 1) * dilation[0] - 1) // strides[0] + 1
    out_w = (x.shape[2] - (taps[1] - 1) * dilation[1] - 1) // strides[1] + 1
    rows = np.arange(out_h)[:, None] * strides[0] + np.arange(taps[0]) * dilation[0]
    columns = np.arange(out_w)[:, None] * strides[1] + np.arange(taps[1]) * dilation[1]
    return x[:, rows[:, None, :, None], columns[None, :, None, :]]


def convolve(x: np.ndarray, weights: np.ndarray, strides: Any, padding: Any, dilation: Any, groups: int) -> np.ndarray:
    """x [N, H, W, C], weights [KH, KW, C/groups, O] -> [N, OH, OW, O]."""
    top, left, bottom, right = padding
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    seen = windows(x, weights.shape[:2], strides, dilation)
    per_in, per_out = weights.shape[2], weights.shape[3] // groups
    parts = [
        np.einsum(
            "nyxhwc,hwco->nyxo",
            seen[..., g * per_in : (g + 1) * per_in],
            weights[..., g * per_out : (g + 1) * per_out],
        )
        for g in range(groups)
    ]
    return np.concatenate(parts, axis=3)


def pool(x: np.ndarray, step: Step, padding: Any, kind: str) -> np.ndarray:
    top, left, bottom, right = padding
    empty = -np.inf if kind == "max" else np.nan
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=empty)
    seen = windows(padded, step.kernel, step.strides, (1, 1))
    return seen.max(axis=(3, 4)) if kind == "max" else np.nanmean(seen, axis=(3, 4))


def build(graph: tuple[tuple[int, int, int], list[Step], int]) -> tuple[Any, np.ndarray, list[np.ndarray]]:
    """The Relax module, an input, and the outputs: the last tensor and, where they differ, the first after it."""
    (height, width, channels), steps, seed = graph
    builder = Builder(seed)
    value = builder.random(1, height, width, channels)
    parameter = relax.Var("x", relax.TensorType(value.shape, "float32"))
    made = [Tensor(parameter, value)]
    with builder.relax.function("main", [parameter]):
        with builder.relax.dataflow():
            for step in steps:
                if made[-1].value.ndim != 4:
                    break
                made.append(STEPS[step.kind](builder, made, step))
            chosen = [made[-1]] if len(made) < 3 else [made[-1], made[1]]
            out = relax.Tuple([tensor.var for tensor in chosen]) if len(chosen) > 1 else chosen[0].var
            result = builder.relax.emit_output(out)
        builder.relax.emit_func_output(result)
    return builder.relax.get(), value, [tensor.value for tensor in chosen]


def _conv(b: Builder, made: list[Tensor], step: Step) -> Tensor:
    return b.conv(made[-1], step, step.channels, 1)


def _depthwise(b: Builder, made: list[Tensor], step: Step) -> Tensor:
    channels = made[-1].value.shape[3]
    return b.conv(made[-1], step, channels * (1 + step.choice % 2), channels)


def _grouped(b: Builder, made: list[Tensor], step: Step) -> Tensor:
    channels = made[-1].value.shape[3]
    groups = next(g for g in (4, 2, 1) if channels % g == 0 and channels > g) if channels > 1 else 1
    return b.conv(made[-1], step, groups * (1 + step.choice % 4), groups)


def _bias(b: Builder, made: list[Tensor], step: Step) -> Tensor:
    return _with_constant(b, made[-1], b.random(made[-1].value.shape[3]), 0)


def _constant(b: Builder, made: list[Tensor], step: Step) -> Tensor:
    """Any shape that broadcasts, any of the four operators, on either side."""
    shape = made[-1].value.shape
    kept = [extent if step.padding[axis] else 1 for axis, extent in enumerate(shape)]
    constant = b.random(*kept[step.choice % 5 :])
    return _with_constant(b, made[-1], np.abs(constant) + 0.5, step.choice)


def _with_constant(b: Builder, x: Tensor, constant: np.ndarray, choice: int) -> Tensor:
    name, function = [("add", np.add), ("multiply", np.multiply), ("subtract", np.subtract), ("maximum", np.maximum)][
        choice % 4
    ]
    operand = relax.const(constant)
    if choice % 3 == 1:
        return b.emit(getattr(relax.op, name)(operand, x.var), function(constant, x.value))
    return b.emit(getattr(relax.op, name)(x.var, operand), function(x.value, constant))


def _relu(b: Builder, made: list[Tensor], step: Step) -> Tensor:
    return b.emit(relax.op.nn.relu(made[-1].var), np.maximum(made[-1].value, 0))


def _clip(b: Builder, made: list[Tensor], step: Step) -> Tensor:
    return b.emit(relax.op.clip(made[-1].var, 0, 6), np.clip(made[-1].value, 0, 6))


def _sigmoid(b: Builder, made: list[Tensor], step: Step) -> Tensor:
    return b.emit(relax.op.sigmoid(made[-1].var), 1 / (1 + np.exp(-made[-1].value)))


def _hard_swish(b: Builder, made: list[Tensor], step: Step) -> Tensor:
    x = made[-1]
    shifted = b.emit(relax.op.add(x.var, relax.const(3.0)), x.value + 3)
    gate = b.emit(relax.op.clip(shifted.var, 0, 6), np.clip(shifted.value, 0, 6))
    product = b.emit(relax.op.multiply(x.var, gate.var), x.value * gate.value)
    return b.emit(relax.op.divide(product.var, relax.const(6.0)), product.value / 6)


def _prelu(b: Builder, made: list[Tensor], step: Step) -> Tensor:
    """As TVM's TFLite importer writes it: flat, with a slope for every element."""
    x = made[-1]
    slope = b.random(*[x.value.shape[3]] if step.choice % 2 else x.value.shape[1:])
    slopes = np.broadcast_to(slope, x.value.shape)
    flat = b.relax.emit(relax.op.reshape(x.var, [-1]))
    active = b.relax.emit(relax.op.nn.prelu(flat, relax.const(np.ascontiguousarray(slopes).reshape(-1)), axis=0))
    return b.emit(relax.op.reshape(active, x.value.shape), np.where(x.value > 0, x.value, slopes * x.value))


def _pool(kind: str) -> Any:
    def make(b: Builder, made: list[Tensor], step: Step) -> Tensor:
        x = made[-1]
        # A window that lies wholly in the padding has no average.
        smaller = tuple(min(p, k - 1) for p, k in zip(step.padding, step.kernel * 2, strict=True))
        padding = fitting(x.value.shape, step.kernel, (1, 1), smaller)
        if any(p >= k for p, k in zip(padding, step.kernel * 2, strict=True)):
            return _relu(b, made, step)
        options = {} if kind == "max" else {"count_include_pad": False}
        expr = getattr(relax.op.nn, f"{kind}_pool2d")(
            x.var, pool_size=step.kernel, strides=step.strides, padding=padding, layout="NHWC", **options
        )
        return b.emit(expr, pool(x.value, step, padding, kind))

    return make


def _pad(b: Builder, made: list[Tensor], step: Step) -> Tensor:
    top, left, bottom, right = step.padding
    channels = (0, step.choice % 3 * 4) if step.choice < 6 else (0, step.choice % 3)
    widths = ((0, 0), (top, bottom), (left, right), channels)
    expr = relax.op.nn.pad(made[-1].var, [w for pair in widths for w in pair], "constant", 0.0)
    return b.emit(expr, np.pad(made[-1].value, widths))


def _residual(b: Builder, made: list[Tensor], step: Step) -> Tensor:
    fits = [t for t in made if t.value.shape == made[-1].value.shape]
    other = fits[step.choice % len(fits)]
    return b.emit(relax.op.add(made[-1].var, other.var), made[-1].value + other.value)


def _concat(b: Builder, made: list[Tensor], step: Step) -> Tensor:
    x = made[-1]
    fits = [t for t in made if t.value.ndim == 4 and t.value.shape[:3] == x.value.shape[:3]]
    other = fits[step.choice % len(fits)]
    return b.emit(relax.op.concat([x.var, other.var], axis=3), np.concatenate([x.value, other.value], axis=3))


def _squeeze(b: Builder, made: list[Tensor], step: Step) -> Tensor:
    """Squeeze and excite: mean, two pointwise convolutions, a gate."""
    x = made[-1]
    mean = b.emit(
        relax.op.mean(x.var, axis=[1, 2], keepdims=True), x.value.mean(axis=(1, 2), keepdims=True, dtype="float64")
    )
    narrow = Step("conv", 0, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 0)
    inner = b.conv(mean, narrow, step.channels, 1, kernel=(1, 1))
    inner = b.emit(relax.op.nn.relu(inner.var), np.maximum(inner.value, 0))
    gate = b.conv(inner, narrow, x.value.shape[3], 1, kernel=(1, 1))
    gate = b.emit(relax.op.sigmoid(gate.var), 1 / (1 + np.exp(-gate.value)))
    return b.emit(relax.op.multiply(x.var, gate.var), x.value * gate.value)


def _resize(b: Builder, made: list[Tensor], step: Step) -> Tensor:
    x = made[-1]
    height, width = x.value.shape[1:3]
    expr = relax.op.image.resize2d(
        x.var,
        relax.ShapeExpr([2 * height, 2 * width]),
        layout="NHWC",
        method="nearest_neighbor",
        coordinate_transformation_mode="asymmetric",
        rounding_method="floor",
    )
    return b.emit(expr, x.value.repeat(2, axis=1).repeat(2, axis=2))


def _softmax(b: Builder, made: list[Tensor], step: Step) -> Tensor:
    axis = 3 if step.choice % 2 else 1
    powers = np.exp(made[-1].value - made[-1].value.max(axis=axis, keepdims=True))
    return b.emit(relax.op.nn.softmax(made[-1].var, axis=axis), powers / powers.sum(axis=axis, keepdims=True))


def _mean(b: Builder, made: list[Tensor], step: Step) -> Tensor:
    axes = [(1, 2), (3,), (2,), (1, 2, 3)][step.choice % 4]
    keep = step.choice % 3 > 0
    expr = relax.op.mean(made[-1].var, axis=list(axes), keepdims=keep)
    return b.emit(expr, made[-1].value.mean(axis=axes, keepdims=keep, dtype="float64"))


STEPS = {
    "conv": _conv,
    "depthwise": _depthwise,
    "grouped": _grouped,
    "bias": _bias,
    "constant": _constant,
    "relu": _relu,
    "clip": _clip,
    "sigmoid": _sigmoid,
    "hard_swish": _hard_swish,
    "prelu": _prelu,
    "max_pool": _pool("max"),
    "avg_pool": _pool("avg"),
    "pad": _pad,
    "residual": _residual,
    "concat": _concat,
    "squeeze": _squeeze,
    "resize": _resize,
    "softmax": _softmax,
    "mean": _mean,
}
