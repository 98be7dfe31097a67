"""Errors as compilers make them, planted into a network one at a time: the check catches each."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.measure.numerics import Check, check
from layoutlab.spec.models import CheckSpec

from ..conftest import TINY
from .running import Built, run_tflite, seeded_inputs

MODEL = TINY / "tiny_conv.tflite"
Change = Callable[[relax.Call], relax.Expr]


@mutator
class _FirstCall(PyExprMutator):
    """Changes the first call of an operator."""

    def __init__(self, mod: tvm.IRModule, op: str, change: Change) -> None:
        super().__init__(mod)
        self._op, self._change = op, change
        self.changed = False

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if self.changed or getattr(call.op, "name", "") != f"relax.nn.{self._op}":
            return call
        self.changed = True
        return self.builder_.normalize(self._change(call))


def with_weights(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    def changed(call: relax.Call) -> relax.Expr:
        data, weights = call.args
        value = change(weights.value.numpy().copy())
        return relax.Call(call.op, [data, relax.const(value)], call.attrs, span=call.span)

    return changed


def not_a_number(call: relax.Call) -> relax.Expr:
    """The square root of what is below zero."""
    return relax.op.sqrt(relax.op.subtract(call, relax.const(2, "float32")))


def shifted_padding(call: relax.Call) -> relax.Expr:
    """The same sum of padding, one row further up."""
    attrs = call.attrs
    top, left, bottom, right = (int(rows) for rows in attrs.padding)
    return relax.op.nn.conv2d(
        *call.args,
        strides=attrs.strides,
        padding=[top - 1, left, bottom + 1, right],
        dilation=attrs.dilation,
        groups=attrs.groups,
        data_layout=attrs.data_layout,
        kernel_layout=attrs.kernel_layout,
    )


def without_the_last_channel(lowered: tvm.IRModule) -> tvm.IRModule:
    """A schedule whose innermost loop over input channels ends one too early."""
    changed = 0

    def shorter(grid: re.Match[str]) -> str:
        nonlocal changed
        changed += 1
        return f"{grid[1]}{int(grid[2]) - 1}))"

    for name, function in lowered.functions.items():
        if name.name_hint.startswith("fused_conv2d"):
            text = re.sub(r"(T\.grid\((?:T\.int64\(\d+\), ){6}T\.int64\()(\d+)\)\)", shorter, function.script())
            lowered[name] = tvm.script.from_source(text)
    assert changed
    return lowered


def checked(mod: tvm.IRModule, folder: Path, change: Callable[[tvm.IRModule], tvm.IRModule] = lambda mod: mod) -> Check:
    inputs = seeded_inputs(MODEL, seed=3)
    outputs = Built(mod, folder, change).run(inputs)
    limits = CheckSpec()
    return check([outputs], [run_tflite(MODEL, inputs)], rtol=limits.rtol, atol=limits.atol)


@pytest.fixture
def honest() -> tvm.IRModule:
    return canonicalise(import_model(MODEL.read_bytes()))


def test_without_an_error_the_check_passes(honest, tmp_path):
    assert checked(honest, tmp_path).ok


@pytest.mark.parametrize(
    ("op", "change", "problem"),
    [
        ("softmax", not_a_number, "values are NaN or infinite where TFLite's are finite"),
        ("conv2d", with_weights(lambda weights: np.roll(weights, 1, axis=-1)), "values differ by more than"),
        ("conv2d", with_weights(lambda weights: np.roll(weights, 1, axis=-2)), "values differ by more than"),
        ("conv2d", shifted_padding, "values differ by more than"),
    ],
    ids=["nan", "output channels swapped", "input channels swapped", "padding off by one"],
)
def test_a_planted_error_is_caught(honest, tmp_path, op, change, problem):
    plant = _FirstCall(honest, op, change)
    honest["main"] = plant.visit_expr(honest["main"])
    assert plant.changed
    found = checked(honest, tmp_path)
    assert not found.ok
    assert problem in found.problem


def test_a_wrong_schedule_is_caught(honest, tmp_path):
    found = checked(honest, tmp_path, without_the_last_channel)
    assert not found.ok
    assert "values differ by more than" in found.problem
