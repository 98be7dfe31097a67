"""How fast the kernels of `roofline.kernels` run, on the device itself.

Only numpy and TVM's runtime are imported, as in `on_device`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from layoutlab.device.candidate_timing import Timing, random_values, samples_s
from layoutlab.measure.cores import choose_cores, pinned
from layoutlab.roofline.kernels import Call


def time_kernels(
    calls: Sequence[Call], repeats: int, min_repeat_ms: int, cores: str | Sequence[int], threads: int
) -> list[list[float]]:
    """For each of `calls` the seconds of one call, `repeats` times.

    `cores` is as for `measure.cores.choose_cores`, `threads` the size of TVM's thread pool. For a process that has not
    used TVM yet: both hold from the start.
    """
    os.environ["TVM_NUM_THREADS"] = str(threads)
    timing = Timing(repeats=repeats, min_repeat_ms=min_repeat_ms, cold_cache=False)
    with pinned(choose_cores(cores, threads)):
        import tvm

        modules = {library: tvm.runtime.load_module(library) for library in dict.fromkeys(path for path, _ in calls)}
        return [kernel_samples_s(modules[library], arguments, timing, tvm.cpu()) for library, arguments in calls]


def kernel_samples_s(
    module: Any, arguments: Sequence[tuple[str, Sequence[int]]], timing: Timing, device: Any
) -> list[float]:
    """Seconds of single calls of `main` in a module; both may be on a device over RPC."""
    import tvm

    tensors = [tvm.runtime.tensor(random_values(dtype, tuple(shape)), device) for dtype, shape in arguments]
    return samples_s(module, tensors, timing, device)
