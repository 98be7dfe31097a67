"""Keeps TVM from parsing every CUDA, Metal and Hexagon intrinsic, which takes it half a minute.

Imported for that effect: `tvm.s_tir.tensor_intrin`, whoever imports it later, finds empty modules in place of those.
"""

from __future__ import annotations

import sys
import types

_GPU_MODULES = ("cuda", "rocm", "metal", "hexagon", "riscv_cpu")

for _name in _GPU_MODULES:
    _stub = types.ModuleType(f"tvm.s_tir.tensor_intrin.{_name}")
    _stub.__all__ = []  # type: ignore[attr-defined]
    sys.modules.setdefault(_stub.__name__, _stub)
