"""What layout transforms cost: each one of a module, built alone, and timed or counted."""

from __future__ import annotations

import contextlib
import functools
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tvm
from tvm import relax

from layoutlab.device.base import DeviceKind
from layoutlab.device.candidate_timing import random_values
from layoutlab.engine.relax.layout.plan import op_name, static_shape
from layoutlab.engine.relax.link import linker_for
from layoutlab.engine.relax.lower import lower
from layoutlab.measure.inputs import save_sets

if TYPE_CHECKING:
    from layoutlab.device.kryo.core import PricedCore

_REPEATS = 5
_MIN_REPEAT_MS = 10
_SIMULATED_S = 300.0


def time_transforms(mod: tvm.IRModule, target: tvm.target.Target, device_kind: DeviceKind) -> float:
    """The sum of the times of all transforms of `main`, in microseconds, compiled by TVM without tuning.

    Equal transforms are timed once: measured on this machine (medians), or counted on the simulated core. The data is
    warm in the cache, as it is after the operator that made it.
    """
    with _stopwatch(device_kind) as time_us:
        times: dict[str, float] = {}
        total = 0.0
        for call in _transforms(mod):
            key = f"{call.args[0].ty} {call.ty} {call.attrs}"
            if key not in times:
                times[key] = time_us(_alone(call, target), static_shape(call.args[0]), str(call.args[0].ty.dtype))
            total += times[key]
        return total


def _transforms(mod: tvm.IRModule) -> Iterator[relax.Call]:
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            call = binding.value
            if isinstance(call, relax.Call) and op_name(call) in ("permute_dims", "layout_transform"):
                yield call


def _alone(call: relax.Call, target: tvm.target.Target) -> tvm.runtime.Executable:
    """The transform as a program of its own."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", call.args[0].ty)
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(relax.Call(call.op, [x], call.attrs)))
        builder.emit_func_output(out)
    return tvm.compile(lower(builder.get(), target, pack_weights=False), target=target)


# Microseconds of one call of a program with one input of a shape and dtype.
_TimeUs = Callable[[tvm.runtime.Executable, Sequence[int], str], float]


@contextlib.contextmanager
def _stopwatch(device_kind: DeviceKind) -> Iterator[_TimeUs]:
    if device_kind != "kryo":
        yield _measure_us
        return
    from layoutlab.device.kryo.core import PricedCore
    from layoutlab.device.kryo.installed import require

    with PricedCore(require(), sys.stderr) as core, tempfile.TemporaryDirectory(prefix="layoutlab-") as folder:
        yield functools.partial(_count_us, core, Path(folder))


def _measure_us(program: tvm.runtime.Executable, shape: Sequence[int], dtype: str) -> float:
    machine = relax.VirtualMachine(program.mod, tvm.cpu())
    tensor = tvm.runtime.tensor(random_values(dtype, tuple(shape)))
    evaluate = machine.time_evaluator("main", tvm.cpu(), number=1, repeat=_REPEATS, min_repeat_ms=_MIN_REPEAT_MS)
    return statistics.median(evaluate(tensor).results) * 1e6


def _count_us(
    core: PricedCore, folder: Path, program: tvm.runtime.Executable, shape: Sequence[int], dtype: str
) -> float:
    library, inputs = folder / "transform.so", folder / "inputs.npz"
    program.export_library(str(library), fcompile=linker_for("kryo"))
    save_sets(inputs, [[random_values(dtype, tuple(shape))]])
    done = core.run_inference({"kind": "artifact", "path": str(library), "threads": 1}, inputs, _SIMULATED_S)
    # Without the virtual machine around it, which is in libraries of its own.
    return 1e3 * sum(cycles.ms for name, cycles in done.functions if not name.startswith("["))
