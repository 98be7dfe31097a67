"""TVM for CPU targets, without the half minute it spends on intrinsics that these do not need; see `cpu_only`.

Import this module before anything of `tvm.s_tir.meta_schedule` is used.
"""

from __future__ import annotations

from layoutlab.engine.relax import cpu_only  # noqa: F401

# isort: split
import tvm
from tvm.s_tir import meta_schedule

__all__ = ["meta_schedule", "tvm"]
