"""What the pools' processes, here or on a cluster, do with one candidate: build it, and measure it.

This module is preloaded by the fork server of `WarmExecutor`, so each process starts with TVM imported.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
import tvm.s_tir

from layoutlab.device.base import DeviceKind
from layoutlab.device.on_device import random_values
from layoutlab.engine.relax import cpu_only  # noqa: F401 (nothing here needs the intrinsics, but TVM may ask for them)
from layoutlab.engine.relax.link import linker_for

# Between two calls with cold caches there is nothing to see; more of them than this add nothing to a median.
_MOST_COLD_CALLS = 200

# (dtype, shape) of each tensor of a candidate.
Arguments = list[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How a candidate is timed: after a warm-up call `repeats` times for at least `min_repeat_ms`; the median counts.

    With `cold_cache` each repeat is one call, before which all tensors but the first leave the caches: within a
    network a function finds its input there, which the one before it wrote, but not its weights, which were last read
    one inference ago. As many calls are timed as fill `repeats` times `min_repeat_ms`, at least `repeats`.
    """

    repeats: int
    min_repeat_ms: int
    cold_cache: bool

    @property
    def timeout_s(self) -> float:
        """What a candidate may take in all. Repeats get longer by steps, up to three times what was asked for."""
        return 30.0 + 4 * self.repeats * self.min_repeat_ms / 1e3


def build_candidate(module_json: str, target: dict[str, Any], device_kind: DeviceKind = "host") -> bytes:
    """Compile a scheduled module; returns the content of the shared library."""
    mod = tvm.ir.load_json(module_json)
    # The schedule may want its weights in another layout. Rewriting is free at run time (it is folded into
    # the constants later), so a candidate is measured without it.
    mod = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod)
    built = tvm.driver.build(mod, target=tvm.target.Target(target))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "candidate.so"
        built.export_library(str(path), fcompile=linker_for(device_kind))
        return path.read_bytes()


def measure_candidate(library: bytes, arguments: Arguments, timing: Timing) -> float:
    """Median seconds of one call on this machine."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(library)
        file.flush()
        module = tvm.runtime.load_module(file.name)
    tensors = [tvm.runtime.tensor(random_values(dtype, shape), tvm.cpu()) for dtype, shape in arguments]
    samples = _cold_samples_s if timing.cold_cache else _warm_samples_s
    return statistics.median(samples(module, tensors, timing))


def _warm_samples_s(module: tvm.runtime.Module, tensors: list[Any], timing: Timing) -> list[float]:
    evaluate = module.time_evaluator(
        "main", tvm.cpu(), number=1, repeat=timing.repeats, min_repeat_ms=timing.min_repeat_ms
    )
    return list(evaluate(*tensors).results)


def _cold_samples_s(module: tvm.runtime.Module, tensors: list[Any], timing: Timing) -> list[float]:
    def evaluator(calls: int) -> Callable[..., Any]:
        return module.time_evaluator(
            "main", tvm.cpu(), number=1, repeat=calls, min_repeat_ms=0, f_preproc="cache_flush_cpu_non_first_arg"
        )

    (once_s,) = evaluator(1)(*tensors).results
    return list(evaluator(cold_calls(timing, once_s))(*tensors).results)


def cold_calls(timing: Timing, once_s: float) -> int:
    """How many calls are timed with cold caches when one takes `once_s` seconds."""
    fill = math.ceil(timing.repeats * timing.min_repeat_ms / 1e3 / max(once_s, 1e-9))
    return max(timing.repeats, min(fill, _MOST_COLD_CALLS))
