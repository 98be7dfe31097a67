"""The gate that nothing wrong may pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutlab.measure.numerics import check

REFERENCE = [[np.array([[0.1, 0.7, 0.2]], "float32")], [np.array([[0.5, 0.3, 0.2]], "float32")]]


def compare(outputs, reference=REFERENCE, rtol=1e-3, atol=1e-4):
    return check(outputs, reference, rtol=rtol, atol=atol)


def copy_with(value, set_number=1, index=(0, 2)):
    outputs = [[array.copy() for array in arrays] for arrays in REFERENCE]
    outputs[set_number][0][index] = value
    return outputs


def test_equal_outputs_are_fine():
    found = compare([[array.copy() for array in arrays] for arrays in REFERENCE])
    assert (found.ok, found.max_abs, found.top1, found.sets, found.problem) == (True, 0.0, 2, 2, "")


def test_a_difference_within_the_tolerance_is_fine_and_shown():
    found = compare(copy_with(0.2002))
    assert found.ok
    assert found.max_abs == pytest.approx(2e-4, rel=1e-2)


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        (
            copy_with(0.21),
            "output 0 of input set 1: 1 of 3 values differ by more than 0.0001 + 0.001 x |TFLite|, at most by 0.01",
        ),
        (
            copy_with(np.nan),
            "output 0 of input set 1: 1 of 3 values are NaN or infinite where TFLite's are finite",
        ),
        (
            copy_with(-np.inf, set_number=0),
            "output 0 of input set 0: 1 of 3 values are NaN or infinite where TFLite's are finite",
        ),
        (
            [[array.reshape(3, 1) for array in arrays] for arrays in REFERENCE],
            "output 0 of input set 0 is float32[3, 1] where TFLite's is float32[1, 3]",
        ),
        (
            [[array.astype("float64") for array in arrays] for arrays in REFERENCE],
            "output 0 of input set 0 is float64[1, 3] where TFLite's is float32[1, 3]",
        ),
        ([[], []], "0 outputs where TFLite has 1"),
        (REFERENCE[:1], "1 results for 2 input sets"),
    ],
)
def test_what_is_wrong_is_said(outputs, problem):
    found = compare(outputs)
    assert not found.ok
    assert found.problem == problem


def test_nan_where_tflite_is_nan_is_equal_and_elsewhere_is_not():
    reference = [[np.array([np.nan, np.inf, 1.0])]]
    assert compare([[np.array([np.nan, np.inf, 1.0])]], reference).ok
    assert not compare([[np.array([np.inf, np.nan, 1.0])]], reference).ok
    assert not compare([[np.array([np.nan, -np.inf, 1.0])]], reference).ok


def test_integers_are_compared_exactly():
    reference = [[np.array([1, 2, 3])]]
    assert compare([[np.array([1, 2, 3])]], reference).ok
    assert compare([[np.array([1, 2, 4])]], reference).problem == "output 0 of input set 0: 1 of 3 values differ"


def test_quantised_outputs_may_be_one_step_apart():
    reference = [[np.array([-128, 0, 127], "int8")]]
    assert compare([[np.array([-127, 1, 126], "int8")]], reference).ok
    assert compare([[np.array([-126, 0, 127], "int8")]], reference).problem == (
        "output 0 of input set 0: 1 of 3 values differ by more than one step"
    )
    assert not compare([[np.array([127, 0, 127], "int8")]], reference).ok


@given(st.integers(0, 2), st.integers(0, 1), st.floats(width=32))
def test_no_value_out_of_tolerance_passes(column, row, value):
    outputs = copy_with(value, row, (0, column))
    wanted = float(REFERENCE[row][0][0, column])
    stored = float(np.float32(value))
    within = abs(stored - wanted) <= 1e-4 + 1e-3 * abs(wanted)
    assert compare(outputs).ok == bool(within)


def test_swapped_channels_and_shifted_rows_are_caught():
    image = np.random.default_rng(1).normal(size=(1, 8, 8, 4)).astype("float32")
    reference = [[image]]
    assert not compare([[image[..., ::-1]]], reference).ok
    assert not compare([[np.roll(image, 1, axis=1)]], reference).ok
