"""How much each operator computes and moves."""

from __future__ import annotations

import pytest

from layoutlab.errors import ModelError
from layoutlab.model.work import operators

from ..conftest import TINY

# Type, output, floating-point operations and bytes, worked out by hand.
ODD = [
    # 3x3 of 3 channels to 6 on 15x21, a multiply-add is two, and a bias each.
    ("CONV_2D", (1, 15, 21, 6), 15 * 21 * 6 * (2 * 27 + 1), 4 * (17 * 23 * 3 + 6 * 27 + 6 + 15 * 21 * 6)),
    ("CONV_2D", (1, 15, 21, 10), 15 * 21 * 10 * (2 * 54 + 1), 4 * (15 * 21 * 6 + 10 * 54 + 10 + 15 * 21 * 10)),
    ("DEPTHWISE_CONV_2D", (1, 8, 11, 10), 8 * 11 * 10 * (2 * 9 + 1), 4 * (15 * 21 * 10 + 90 + 10 + 8 * 11 * 10)),
    # Windows of 2x2.
    ("MAX_POOL_2D", (1, 4, 6, 10), 4 * 6 * 10 * 4, 4 * (8 * 11 * 10 + 4 * 6 * 10)),
    ("CONV_2D", (1, 4, 6, 6), 4 * 6 * 6 * (2 * 10 + 1), 4 * (4 * 6 * 10 + 60 + 6 + 4 * 6 * 6)),
    # Each input once; the axes are two int32.
    ("MEAN", (1, 6), 4 * 6 * 6, 4 * (4 * 6 * 6 + 2 + 6)),
    ("FULLY_CONNECTED", (1, 10), 10 * (2 * 6 + 1), 4 * (6 + 60 + 10 + 10)),
    ("SOFTMAX", (1, 10), 5 * 10, 4 * (10 + 10)),
]


def test_the_work_of_each_operator():
    found = operators((TINY / "tiny_odd.tflite").read_bytes())
    assert [(op.type, op.shape, op.flop, op.bytes) for op in found] == ODD
    assert [op.index for op in found] == list(range(8))
    assert [op.window for op in found] == ["3x3", "3x3", "3x3/2", "2x2/2", "1x1", None, None, None]


def test_what_moves_data_computes_nothing_and_bytes_are_those_of_the_type():
    found = {op.index: op for op in operators((TINY / "tiny_int8.tflite").read_bytes())}
    reshape = next(op for op in found.values() if op.type == "RESHAPE")
    assert reshape.flop == 0
    # 16 int8 read, 16 written, and the new shape of two int32.
    assert reshape.bytes == 16 + 16 + 8


def test_a_malformed_file_is_a_model_error():
    with pytest.raises(ModelError, match="the file is malformed"):
        operators(b"no model")
