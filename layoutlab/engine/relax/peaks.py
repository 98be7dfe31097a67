"""Small kernels that reach a CPU's peaks: multiply-adds in registers, and streams through memory.

Each is written with vectors as wide as the target's registers, so that what LLVM makes of it does not depend on its
vectoriser.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm
from tvm.script import tirx as T

from layoutlab.device.base import DeviceKind
from layoutlab.engine.relax.link import linker_for
from layoutlab.engine.relax.vectors import vector_floats, vector_registers
from layoutlab.roofline.kernels import (
    BYTES_PER_CALL,
    FMA,
    READ,
    STREAM_VECTORS,
    TRIAD,
    TURNS,
    Kernel,
    fma_chains,
    kernels,
)


def build_kernels(target: tvm.target.Target, threads: int, device_kind: DeviceKind, folder: Path) -> list[Kernel]:
    """Build the kernels into `folder`. Raises StageError("build") when they cannot be linked."""
    libraries = {}
    for name in (FMA, READ, TRIAD):
        libraries[name] = str(folder / f"{name}.so")
        built = tvm.compile(kernel(name, target, threads), target=target)
        built.export_library(libraries[name], fcompile=linker_for(device_kind))
    return list(kernels(libraries, vector_floats(target), vector_registers(target), threads))


def kernel(name: str, target: tvm.target.Target, threads: int) -> tvm.IRModule:
    """The module of one kernel, whose function is `main`; its arguments are those of `roofline.kernels`."""
    floats = vector_floats(target)
    if name == FMA:
        return tvm.IRModule({"main": _fma(floats, fma_chains(vector_registers(target)), threads)})
    return tvm.IRModule({"main": (_read if name == READ else _triad)(floats, threads)})


def _fma(floats: int, chains: int, threads: int) -> Any:
    """Chains of sum = sum + x * y, all of it in registers. x and y are inputs, or LLVM would know what they are.

    The sum is what is added to: AArch64 has no multiply-add that leaves its third operand as it is.
    """

    @T.prim_func
    def main(factors_handle: T.handle, sums_handle: T.handle):  # type: ignore[no-untyped-def]
        T.func_attr({"tirx.noalias": True, "global_symbol": "main"})
        factors = T.match_buffer(factors_handle, (2, floats), "float32")
        sums = T.match_buffer(sums_handle, (threads, floats * chains), "float32")
        for thread in T.parallel(threads):
            kept = T.alloc_buffer((floats * chains,), "float32", scope="local")
            for chain in T.unroll(chains):
                kept[T.ramp(chain * floats, 1, floats)] = sums[thread, T.ramp(chain * floats, 1, floats)]
            for _turn in range(TURNS):
                for chain in T.unroll(chains):
                    kept[T.ramp(chain * floats, 1, floats)] = T.fma(
                        factors[0, T.ramp(0, 1, floats)],
                        factors[1, T.ramp(0, 1, floats)],
                        kept[T.ramp(chain * floats, 1, floats)],
                    )
            for chain in T.unroll(chains):
                sums[thread, T.ramp(chain * floats, 1, floats)] = kept[T.ramp(chain * floats, 1, floats)]

    return main


def _read(floats: int, threads: int) -> Any:
    """The sums of all vectors of `data`, which each thread reads its part of."""
    width = floats * STREAM_VECTORS

    @T.prim_func
    def main(data_handle: T.handle, sums_handle: T.handle):  # type: ignore[no-untyped-def]
        T.func_attr({"tirx.noalias": True, "global_symbol": "main"})
        steps = T.int64()
        data = T.match_buffer(data_handle, (threads, steps, width), "float32")
        sums = T.match_buffer(sums_handle, (threads, width), "float32")
        for thread in T.parallel(threads):
            kept = T.alloc_buffer((width,), "float32", scope="local")
            for at in T.unroll(STREAM_VECTORS):
                kept[T.ramp(at * floats, 1, floats)] = T.broadcast(T.float32(0), floats)
            for _pass in range(T.max(T.int64(1), T.int64(BYTES_PER_CALL) // (steps * (4 * threads * width)))):
                for step in range(steps):
                    for at in T.unroll(STREAM_VECTORS):
                        kept[T.ramp(at * floats, 1, floats)] = (
                            kept[T.ramp(at * floats, 1, floats)] + data[thread, step, T.ramp(at * floats, 1, floats)]
                        )
            for at in T.unroll(STREAM_VECTORS):
                sums[thread, T.ramp(at * floats, 1, floats)] = kept[T.ramp(at * floats, 1, floats)]

    return main


def _triad(floats: int, threads: int) -> Any:
    """result = a + b / 2, of which each thread computes a part: two streams are read, one is written."""
    width = floats * STREAM_VECTORS

    @T.prim_func
    def main(a_handle: T.handle, b_handle: T.handle, result_handle: T.handle):  # type: ignore[no-untyped-def]
        T.func_attr({"tirx.noalias": True, "global_symbol": "main"})
        steps = T.int64()
        a = T.match_buffer(a_handle, (threads, steps, width), "float32")
        b = T.match_buffer(b_handle, (threads, steps, width), "float32")
        result = T.match_buffer(result_handle, (threads, steps, width), "float32")
        for thread in T.parallel(threads):
            for _pass in range(T.max(T.int64(1), T.int64(BYTES_PER_CALL) // (steps * (12 * threads * width)))):
                for step in range(steps):
                    for at in T.unroll(STREAM_VECTORS):
                        result[thread, step, T.ramp(at * floats, 1, floats)] = a[
                            thread, step, T.ramp(at * floats, 1, floats)
                        ] + b[thread, step, T.ramp(at * floats, 1, floats)] * T.broadcast(T.float32(0.5), floats)

    return main
