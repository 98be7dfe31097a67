"""Hooks with their options, as a worker makes them."""

from __future__ import annotations

import pytest

from layoutlab import hooks
from layoutlab.engine.base import HookOptions
from layoutlab.engine.relax.compile import make_hook
from layoutlab.engine.relax.tvm_cpu import tvm
from layoutlab.errors import UsageError
from layoutlab.spec.target import parse_target

KRYO = "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu -mcpu=kryo -mattr=+neon -num-cores=1"


@pytest.mark.parametrize(
    ("target", "floats"),
    [
        (KRYO, 4),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64", 4),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", 8),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512", 16),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=rocketlake -mattr=-prefer-256-bit", 16),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -mattr=-avx512f", 8),
    ],
)
def test_block_auto_is_one_vector_of_the_target(target, floats):
    options = HookOptions(label="nchwc(block=auto)", name="nchwc", block="auto", pad=True)
    assert make_hook(options, tvm.target.Target(parse_target(target))) == hooks.Nchwc(floats, pad=True)


def test_a_number_a_table_and_a_name():
    target = tvm.target.Target(parse_target(KRYO))
    assert make_hook(HookOptions(label="", name="nchwc", block=8), target) == hooks.Nchwc(8)
    rules = (hooks.Rule(layout="NCHW"),)
    assert make_hook(HookOptions(label="", name=None, rules=rules), target) == hooks.Table(rules)
    assert make_hook(HookOptions(label="", name="keep"), target) is hooks.keep
    with pytest.raises(UsageError):
        make_hook(HookOptions(label="", name="json:dumps"), target)
