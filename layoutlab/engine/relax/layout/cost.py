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
from layoutlab.device.rpc.address import RpcAddress
from layoutlab.engine.relax.layout.plan import op_name, static_shape
from layoutlab.engine.relax.link import linker_for
from layoutlab.engine.relax.lower import lower
from layoutlab.measure.inputs import save_sets

if TYPE_CHECKING:
    from layoutlab.device.kryo.core import PricedCore
    from layoutlab.device.rpc.remote import Remote

_REPEATS = 5
_MIN_REPEAT_MS = 10
_SIMULATED_S = 300.0
_REMOTE_S = 60.0


def time_transforms(
    mod: tvm.IRModule, target: tvm.target.Target, device_kind: DeviceKind, rpc: RpcAddress | None = None
) -> float:
    """The sum of the times of all transforms of `main`, in microseconds, compiled by TVM without tuning.

    Equal transforms are timed once: measured on this machine or on a device at `rpc` (medians), or counted on the
    simulated core. The data is warm in the cache, as it is after the operator that made it.
    """
    with _stopwatch(device_kind, rpc) as time_us:
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
def _stopwatch(device_kind: DeviceKind, rpc: RpcAddress | None) -> Iterator[_TimeUs]:
    if device_kind == "host":
        yield _measure_us
        return
    if rpc is not None:
        from layoutlab.device.rpc.remote import open_remote

        with contextlib.closing(open_remote(rpc)) as remote, tempfile.TemporaryDirectory(prefix="layoutlab-") as folder:
            yield functools.partial(_measure_remote_us, remote, Path(folder))
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


def _measure_remote_us(
    remote: Remote, folder: Path, program: tvm.runtime.Executable, shape: Sequence[int], dtype: str
) -> float:
    library, inputs = _place(folder, program, "rpc", shape, dtype)
    arguments = {"repeats": _REPEATS, "min_repeat_ms": _MIN_REPEAT_MS, "warmup_ms": _MIN_REPEAT_MS}
    runner = {"kind": "artifact", "path": str(library), "threads": 1}
    return 1e3 * statistics.median(remote.take_samples(runner, inputs, arguments, _REMOTE_S)["samples_ms"])


def _count_us(
    core: PricedCore, folder: Path, program: tvm.runtime.Executable, shape: Sequence[int], dtype: str
) -> float:
    library, inputs = _place(folder, program, "kryo", shape, dtype)
    done = core.run_inference({"kind": "artifact", "path": str(library), "threads": 1}, inputs, _SIMULATED_S)
    # Without the virtual machine around it, which is in libraries of its own.
    return 1e3 * sum(cycles.ms for name, cycles in done.functions if not name.startswith("["))


def _place(
    folder: Path, program: tvm.runtime.Executable, device_kind: DeviceKind, shape: Sequence[int], dtype: str
) -> tuple[Path, Path]:
    """The program as a library, and a file with an input for it."""
    library, inputs = folder / "transform.so", folder / "inputs.npz"
    program.export_library(str(library), fcompile=linker_for(device_kind))
    save_sets(inputs, [[random_values(dtype, tuple(shape))]])
    return library, inputs
