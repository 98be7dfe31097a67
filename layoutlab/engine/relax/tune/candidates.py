"""What the pools' processes, here or on a cluster, do with one candidate: build it, and measure it.

This module is preloaded by the fork server of `WarmExecutor`, so each process starts with TVM imported.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm
import tvm.s_tir

from layoutlab.device.base import DeviceKind
from layoutlab.device.candidate_timing import Timing, time_candidate
from layoutlab.engine.base import USUAL_PASSES, PassOptions
from layoutlab.engine.relax import cpu_only  # noqa: F401 (nothing here needs the intrinsics, but TVM may ask for them)
from layoutlab.engine.relax.link import linker_for
from layoutlab.engine.relax.passes import pass_context
from layoutlab.measure.cores import choose_cores, pinned

# (dtype, shape) of each tensor of a candidate.
Arguments = list[tuple[str, tuple[int, ...]]]


def build_candidate(
    module_json: str, target: dict[str, Any], device_kind: DeviceKind = "host", passes: PassOptions = USUAL_PASSES
) -> bytes:
    """Compile a scheduled module; returns the content of the shared library."""
    mod = tvm.ir.load_json(module_json)
    # The schedule may want its weights in another layout. Rewriting is free at run time (it is folded into
    # the constants later), so a candidate is measured without it.
    mod = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod)
    with pass_context(passes):
        built = tvm.driver.build(mod, target=tvm.target.Target(target))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "candidate.so"
        built.export_library(str(path), fcompile=linker_for(device_kind))
        return path.read_bytes()


def measure_candidate(
    library: bytes, arguments: Arguments, timing: Timing, cores: str | Sequence[int], threads: int
) -> float:
    """Median seconds of one call on this machine, on `cores` of it (see `measure.cores.choose_cores`)."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(library)
        file.flush()
        with pinned(choose_cores(cores, threads)):
            return time_candidate(file.name, arguments, timing)
