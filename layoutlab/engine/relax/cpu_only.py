"""Keeps TVM from parsing intrinsics that nobody here needs: half a minute for those of GPUs, two seconds for CPUs'.

`tvm.s_tir.tensor_intrin` parses every CUDA WMMA and MMA intrinsic, and every one of Arm, through TVMScript when it is
imported (24 s measured on a 2-core machine, 1.5 s of them for the CPUs), and MetaSchedule imports it for each
TuneContext and in each builder process. Importing this module first puts empty modules in place of all of them;
`load_intrinsics` brings those of one target's CPU back, which design spaces need.
"""

from __future__ import annotations

import importlib
import platform
import sys
import types
from typing import Any

_PACKAGE = "tvm.s_tir.tensor_intrin"
_MODULES = ("cuda", "rocm", "metal", "hexagon", "riscv_cpu", "arm_cpu", "x86")

for _name in _MODULES:
    _stub = types.ModuleType(f"{_PACKAGE}.{_name}")
    _stub.__all__ = []  # type: ignore[attr-defined]
    sys.modules.setdefault(_stub.__name__, _stub)


def load_intrinsics(target: Any) -> None:
    """Register the intrinsics of the target's CPU, as MetaSchedule's rules for it expect; once in a process."""
    triple = str(target.attrs.get("mtriple", None) or platform.machine())
    name = f"{_PACKAGE}.{'x86' if triple.startswith(('x86', 'i386', 'i686', 'AMD64')) else 'arm_cpu'}"
    if not hasattr(sys.modules[name], "__file__"):
        del sys.modules[name]
        importlib.import_module(name)
