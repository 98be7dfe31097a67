"""What layout transforms cost: each one of a module, built alone and timed on this machine."""

from __future__ import annotations

import statistics

import numpy as np
import tvm
from tvm import relax

from layoutlab.engine.relax.layout.plan import op_name, static_shape
from layoutlab.engine.relax.lower import lower

_REPEATS = 5
_MIN_REPEAT_MS = 10


def time_transforms(mod: tvm.IRModule, target: tvm.target.Target) -> float:
    """The sum of the median times of all transforms of `main`, in microseconds, compiled by TVM without tuning.

    Equal transforms are timed once. The data is warm in the cache, as it is after the operator that made it.
    """
    times: dict[str, float] = {}
    total = 0.0
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            call = binding.value
            if isinstance(call, relax.Call) and op_name(call) in ("permute_dims", "layout_transform"):
                key = f"{call.args[0].ty} {call.ty} {call.attrs}"
                if key not in times:
                    times[key] = _time_us(call, target)
                total += times[key]
    return total


def _time_us(call: relax.Call, target: tvm.target.Target) -> float:
    builder = relax.BlockBuilder()
    x = relax.Var("x", call.args[0].ty)
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(relax.Call(call.op, [x], call.attrs)))
        builder.emit_func_output(out)
    lowered = lower(builder.get(), target, pack_weights=False)
    machine = relax.VirtualMachine(tvm.compile(lowered, target=target).mod, tvm.cpu())
    value = np.random.default_rng(1).uniform(0.1, 1.0, static_shape(call.args[0])).astype(str(x.ty.dtype))
    tensor = tvm.runtime.tensor(value)
    evaluate = machine.time_evaluator("main", tvm.cpu(), number=1, repeat=_REPEATS, min_repeat_ms=_MIN_REPEAT_MS)
    return statistics.median(evaluate(tensor).results) * 1e6
