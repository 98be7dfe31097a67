"""A tiny kernel that shows whether a device runs what is compiled for it, and how steady its clock is.

Imports TVM: for worker processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from layoutlab.device.rpc.remote import Remote
from layoutlab.engine.relax.build import build_library
from layoutlab.engine.relax.tvm_cpu import tvm
from layoutlab.errors import StageError
from layoutlab.measure.inputs import load_sets, save_sets

# Three such matrices are in the first cache of every core, so its time depends on the clock alone.
_SIZE = 64
# Sums of 64 products, in whatever order.
_RTOL = 1e-4


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A matrix product as a library for the device, with its inputs, as files of this machine."""

    library: Path
    inputs: Path
    threads: int

    @property
    def runner(self) -> dict[str, Any]:
        """As for `device.runners.open_runner`."""
        return {"kind": "artifact", "path": str(self.library), "threads": self.threads}


def build_probe(target: Mapping[str, Any], threads: int, folder: Path) -> Probe:
    """Compile and link the kernel for a device over RPC. Raises StageError when it cannot be linked."""
    built_for = tvm.target.Target({**target, "num-cores": threads})
    made = Probe(library=folder / "probe.so", inputs=folder / "probe.npz", threads=threads)
    build_library(_matrix_product(), built_for, str(made.library), "rpc")
    generator = np.random.default_rng(1)
    save_sets(made.inputs, [[generator.uniform(-1, 1, (_SIZE, _SIZE)).astype("float32") for _ in range(2)]])
    return made


def require_right(probe: Probe, remote: Remote, timeout_s: float) -> None:
    """Run the kernel once on the device. Raises StageError when it fails there or is wrong."""
    outputs = probe.library.with_name("outputs.npz")
    remote.compute_outputs(probe.runner, probe.inputs, outputs, timeout_s)
    (found,), (left, right) = load_sets(outputs)[0], load_sets(probe.inputs)[0]
    if not np.allclose(found, left @ right, rtol=_RTOL, atol=_RTOL):
        worst = float(np.abs(found - left @ right).max())
        raise StageError("run", f"the product of two matrices is wrong there, by {worst:.1e}")


def take_probe_samples(
    probe: Probe, remote: Remote, cores: str | list[int], repeats: int, min_repeat_ms: float, timeout_s: float
) -> dict[str, Any]:
    """Time the kernel on the device's `cores`; see `device.on_device.take_samples`."""
    arguments = {"repeats": repeats, "min_repeat_ms": min_repeat_ms, "warmup_ms": 0, "cores": cores}
    return remote.take_samples(probe.runner, probe.inputs, arguments, timeout_s)


def _matrix_product() -> tvm.IRModule:
    from tvm import relax, te

    def product(left: te.Tensor, right: te.Tensor) -> te.Tensor:
        index = te.reduce_axis((0, _SIZE), "index")
        return te.compute(
            (_SIZE, _SIZE), lambda row, column: te.sum(left[row, index] * right[index, column], index), "product"
        )

    builder = relax.BlockBuilder()
    left, right = (relax.Var(name, relax.TensorType((_SIZE, _SIZE), "float32")) for name in ("left", "right"))
    with builder.function("main", [left, right]):
        with builder.dataflow():
            result = builder.emit_output(builder.emit_te(product, left, right))
        builder.emit_func_output(result)
    return _parallel(builder.get())


def _parallel(mod: tvm.IRModule) -> tvm.IRModule:
    """With the rows shared out to the threads."""
    schedule = tvm.s_tir.Schedule(mod)
    schedule.work_on("product")
    schedule.parallel(schedule.get_loops(schedule.get_sblock("product"))[0])
    return schedule.mod
