"""TVM for CPU targets, without the half minute it spends on GPU intrinsics.

`tvm.s_tir.tensor_intrin` parses every CUDA WMMA and MMA intrinsic through TVMScript when it is imported (24 s
measured on a 2-core machine), and MetaSchedule imports it for each TuneContext and in each builder process. A CPU
target uses `arm_cpu` and `x86` of that package only, so the other modules are replaced by empty ones.

Import this module before anything of `tvm.s_tir.meta_schedule` is used.
"""

from __future__ import annotations

import sys
import types

_GPU_MODULES = ("cuda", "rocm", "metal", "hexagon", "riscv_cpu")

for _name in _GPU_MODULES:
    _stub = types.ModuleType(f"tvm.s_tir.tensor_intrin.{_name}")
    _stub.__all__ = []  # type: ignore[attr-defined]
    sys.modules.setdefault(_stub.__name__, _stub)

import tvm  # noqa: E402
import tvm.s_tir.tensor_intrin  # noqa: E402
from tvm.s_tir import meta_schedule  # noqa: E402

__all__ = ["meta_schedule", "tvm"]
