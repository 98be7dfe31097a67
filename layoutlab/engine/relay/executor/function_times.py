"""How long each function takes within an inference, of variants that a Relay-era TVM built too.

The clock is read by the loop over the calls itself, in C (see `runtime.c`): some ten nanoseconds a call.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layoutlab.device import function_times
from layoutlab.device.function_times import _FEWEST_TURNS, _TURN, _elapsed_ns
from layoutlab.engine.relay.executor.runner import KIND, RelayRunner
from layoutlab.measure.conditions import read_conditions
from layoutlab.measure.cores import choose_cores, pinned
from layoutlab.measure.inputs import load_sets
from layoutlab.measure.timing import sample


def time_functions(
    runner: dict[str, Any],
    inputs: str,
    inferences: int,
    budget_ms: float,
    warmup_ms: float,
    cores: str | Sequence[int] = "big",
) -> dict[str, Any]:
    """As `device.function_times.time_functions`, for `runner` of either kind."""
    if runner["kind"] != KIND:
        return function_times.time_functions(runner, inputs, inferences, budget_ms, warmup_ms, cores)
    with pinned(choose_cores(cores, runner["threads"])):
        opened = RelayRunner(runner["path"], runner["threads"])
        opened.set_inputs(load_sets(Path(inputs))[0])
        sample(opened.invoke, repeats=1, min_repeat_ms=0, warmup_ms=warmup_ms)
        plain_ns: list[int] = []
        watched_ns: list[int] = []
        calls: list[list[tuple[str, int]]] = []
        before, started_ns = read_conditions(), time.perf_counter_ns()
        for turn in range(-(-inferences // _TURN)):
            plain_ns += [_elapsed_ns(opened.invoke) for _ in range(_TURN)]
            watched_ns += [_elapsed_ns(lambda: calls.append(opened.invoke_timed())) for _ in range(_TURN)]
            if turn + 1 >= _FEWEST_TURNS and (time.perf_counter_ns() - started_ns) / 1e6 > budget_ms:
                break
        return {
            "functions": [name for name, _ in calls[0]],
            "times_us": [[ns / 1e3 for _, ns in inference] for inference in calls],
            "end_to_end_ms": [ns / 1e6 for ns in plain_ns],
            "instrumented_ms": [ns / 1e6 for ns in watched_ns],
            "conditions": [before, read_conditions()],
            "runtime": opened.runtime,
        }
