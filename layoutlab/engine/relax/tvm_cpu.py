"""TVM for CPU targets, without the half minute it spends on GPU intrinsics.

`tvm.s_tir.tensor_intrin` parses every CUDA WMMA and MMA intrinsic through TVMScript when it is imported (24 s
measured on a 2-core machine), and MetaSchedule imports it for each TuneContext and in each builder process. A CPU
target uses `arm_cpu` and `x86` of that package only, so the other modules are replaced by empty ones.

Import this module before anything of `tvm.s_tir.meta_schedule` is used.
"""

from __future__ import annotations

from layoutlab.engine.relax import cpu_only  # noqa: F401

# isort: split
import tvm
import tvm.s_tir.tensor_intrin
from tvm.s_tir import meta_schedule

__all__ = ["meta_schedule", "tvm"]
