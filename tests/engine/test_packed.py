"""The packed computes against a convolution written in numpy, over random shapes."""

from __future__ import annotations

import numpy as np
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te

from layoutlab.engine.relax.layout.packed import conv2d_nchwc, depthwise_conv2d_nchwc

pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@st.composite
def convolutions(draw):
    """Block sizes and counts, kernel, strides, padding, dilation, and an input just large enough for them."""
    kernel, strides, dilation = draw(pairs), draw(pairs), draw(pairs)
    padding = tuple(draw(st.integers(0, 2)) for _ in range(4))
    size = tuple((k - 1) * d + 1 + draw(st.integers(0, 5)) for k, d in zip(kernel, dilation, strict=True))
    blocks = draw(st.sampled_from([(1, 4), (3, 4), (4, 4), (8, 8), (2, 3)]))
    return blocks, draw(st.integers(1, 2)), draw(st.integers(1, 2)), size, kernel, strides, padding, dilation


def direct_convolution(data, kernel, strides, padding, dilation, depthwise):
    """data [C, H, W], kernel [O, I, KH, KW] -> [O, OH, OW], by the definition."""
    top, left, bottom, right = padding
    data = np.pad(data, ((0, 0), (top, bottom), (left, right)))
    taps_h, taps_w = kernel.shape[2:]
    out_h = (data.shape[1] - (taps_h - 1) * dilation[0] - 1) // strides[0] + 1
    out_w = (data.shape[2] - (taps_w - 1) * dilation[1] - 1) // strides[1] + 1
    out = np.zeros((kernel.shape[0], out_h, out_w))
    for y in range(out_h):
        for x in range(out_w):
            rows = y * strides[0] + dilation[0] * np.arange(taps_h)
            columns = x * strides[1] + dilation[1] * np.arange(taps_w)
            window = data[:, rows][:, :, columns]
            product = kernel[:, 0] * window if depthwise else kernel * window[None]
            out[:, y, x] = product.reshape(len(out), -1).sum(axis=1)
    return out


def pack(array, axis, block):
    """Split `axis` into blocks and move the inner one to the end."""
    shape = array.shape
    split = array.reshape(*shape[:axis], shape[axis] // block, block, *shape[axis + 1 :])
    return np.moveaxis(split, axis + 1, -1)


def compute(function, data, kernel, *attributes):
    x, w = te.placeholder(data.shape, name="x"), te.placeholder(kernel.shape, name="w")
    out = function(x, w, *attributes)
    built = tvm.compile(te.create_prim_func([x, w, out]), target="llvm")
    result = tvm.runtime.tensor(np.zeros([int(extent) for extent in out.shape], "float32"))
    built(tvm.runtime.tensor(data), tvm.runtime.tensor(kernel), result)
    return result.numpy()


@settings(max_examples=25, deadline=None, derandomize=True)
@given(convolutions(), st.integers(0, 2**32 - 1))
def test_conv2d(case, seed):
    (in_block, out_block), in_blocks, out_blocks, size, taps, strides, padding, dilation = case
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(in_blocks * in_block, *size)).astype("float32")
    kernel = rng.normal(size=(out_blocks * out_block, len(data), *taps)).astype("float32")
    found = compute(
        conv2d_nchwc,
        np.ascontiguousarray(pack(data[None], 1, in_block)),
        np.ascontiguousarray(pack(kernel, 0, out_block)),
        strides,
        padding,
        dilation,
    )
    expected = direct_convolution(data, kernel, strides, padding, dilation, depthwise=False)
    np.testing.assert_allclose(found, pack(expected[None], 1, out_block), rtol=1e-4, atol=1e-4)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(convolutions(), st.integers(0, 2**32 - 1))
def test_depthwise_conv2d(case, seed):
    (_, block), blocks, _, size, taps, strides, padding, dilation = case
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(blocks * block, *size)).astype("float32")
    kernel = rng.normal(size=(len(data), 1, *taps)).astype("float32")
    found = compute(
        depthwise_conv2d_nchwc,
        np.ascontiguousarray(pack(data[None], 1, block)),
        np.ascontiguousarray(pack(kernel, 0, block)),
        strides,
        padding,
        dilation,
    )
    expected = direct_convolution(data, kernel, strides, padding, dilation, depthwise=True)
    np.testing.assert_allclose(found, pack(expected[None], 1, block), rtol=1e-4, atol=1e-4)
