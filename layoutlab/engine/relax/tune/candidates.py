"""What the pool's processes do with one candidate: build it, and measure it.

This module is preloaded by the pool's fork server, so each process starts with TVM imported.
"""

from __future__ import annotations

import statistics
import uuid
from pathlib import Path
from typing import Any

import tvm
import tvm.s_tir

from layoutlab.device.base import DeviceKind
from layoutlab.device.on_device import random_values
from layoutlab.engine.relax.link import linker_for

# Each candidate: one warm-up call, then so many repeats of at least so many milliseconds; the median counts.
_REPEATS = 3
_MIN_REPEAT_MS = 15


def build_candidate(module_json: str, target: dict[str, Any], folder: str, device_kind: DeviceKind = "host") -> str:
    """Compile a scheduled module to a shared library in `folder`; returns its path."""
    mod = tvm.ir.load_json(module_json)
    # The schedule may want its weights in another layout. Rewriting is free at run time (it is folded into
    # the constants later), so a candidate is measured without it.
    mod = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod)
    path = Path(folder) / f"{uuid.uuid4().hex}.so"
    built = tvm.driver.build(mod, target=tvm.target.Target(target))
    built.export_library(str(path), fcompile=linker_for(device_kind))
    return str(path)


def measure_candidate(path: str, arguments: list[tuple[str, tuple[int, ...]]]) -> float:
    """Median seconds of one call on this machine; `arguments` are (dtype, shape) of each tensor."""
    library = tvm.runtime.load_module(path)
    device = tvm.cpu()
    tensors = [tvm.runtime.tensor(random_values(dtype, shape), device) for dtype, shape in arguments]
    evaluate = library.time_evaluator("main", device, number=1, repeat=_REPEATS, min_repeat_ms=_MIN_REPEAT_MS)
    return statistics.median(evaluate(*tensors).results)
