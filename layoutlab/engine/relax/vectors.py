"""The vector registers of a target: what register tiles and blocks of channels are made for."""

from __future__ import annotations

import tvm


def vector_floats(target: tvm.target.Target) -> int:
    """The number of float32 in one vector of the target: 16 with AVX-512, 8 with AVX, 4 with NEON, SSE and others.

    From LLVM's features: TVM 0.27's own `llvm_get_vector_width` says 512 bits of every x86 CPU.
    """
    for feature, floats in (("avx512f", 16), ("avx", 8)):
        if tvm.target.codegen.llvm_cpu_has_features(feature, target):
            return floats
    return 4


def vector_registers(target: tvm.target.Target) -> int:
    """The number of vector registers: 32 with AVX-512 and on AArch64, 16 on other x86 CPUs and elsewhere."""
    if tvm.target.codegen.llvm_cpu_has_features("avx512f", target):
        return 32
    return 32 if is_aarch64(target) else 16


def is_aarch64(target: tvm.target.Target) -> bool:
    """Whether the target says that it is a 64-bit Arm CPU."""
    return str(target.attrs.get("mtriple", "")).startswith(("aarch64", "arm64"))
