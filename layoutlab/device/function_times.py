"""How long each function of a built variant takes within an inference, on the device itself.

TVM's virtual machine calls an instrument before and after each of its calls. Here that is Python reading a clock, which
puts about half a microsecond into the time of each call. So inferences are also timed without it, in turns, in the same
process. Only numpy and TVM's runtime are imported, as in `on_device`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from layoutlab.device.runners import ArtifactRunner
from layoutlab.measure.conditions import read_conditions
from layoutlab.measure.cores import choose_cores, pinned
from layoutlab.measure.inputs import load_sets
from layoutlab.measure.timing import sample

# What the virtual machine does itself: memory, shapes, views.
_BUILTIN = "vm.builtin."
# Inferences of one kind before the other kind has its turn.
_TURN = 5
_FEWEST_TURNS = 2


def time_functions(
    runner: dict[str, Any],
    inputs: str,
    inferences: int,
    budget_ms: float,
    warmup_ms: float,
    cores: str | Sequence[int] = "big",
) -> dict[str, Any]:
    """Time the calls of up to `inferences` inferences of the first input set, fewer when `budget_ms` are over before.

    Gives the symbols of `functions` in the order of their calls, `times_us` of each call for each inference, the
    `end_to_end_ms` of as many inferences that were not looked into, the `instrumented_ms` of those that were, and the
    machine's conditions before and after. `cores` is as for `measure.cores.choose_cores`, `runner` as for
    `device.runners.open_runner`, of kind "artifact".
    """
    with pinned(choose_cores(cores, runner["threads"])):
        opened = ArtifactRunner(runner["path"], runner["threads"])
        opened.set_inputs(load_sets(Path(inputs))[0])
        sample(opened.invoke, repeats=1, min_repeat_ms=0, warmup_ms=warmup_ms)
        watch = _Watch()
        plain_ns: list[int] = []
        watched_ns: list[int] = []
        calls: list[list[tuple[str, int]]] = []
        before, started_ns = read_conditions(), time.perf_counter_ns()
        turns = -(-inferences // _TURN)
        for turn in range(turns):
            opened.set_instrument(None)
            plain_ns += [_elapsed_ns(opened.invoke) for _ in range(_TURN)]
            opened.set_instrument(watch)
            for _ in range(_TURN):
                watched_ns.append(_elapsed_ns(opened.invoke))
                calls.append(watch.take())
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


class _Watch:
    """The instrument: keeps the name and the time of each call that is not the virtual machine's own."""

    def __init__(self) -> None:
        self._calls: list[tuple[str, int]] = []
        self._begun_ns: list[int] = []

    def __call__(self, function: Any, name: str, before: bool, result: Any, *arguments: Any) -> None:
        # The clock is the last thing read before the call, and the first after it.
        if before:
            self._begun_ns.append(time.perf_counter_ns())
            return
        elapsed_ns = time.perf_counter_ns() - self._begun_ns.pop()
        if not name.startswith(_BUILTIN):
            self._calls.append((name, elapsed_ns))

    def take(self) -> list[tuple[str, int]]:
        """The calls since the last time, as (symbol, nanoseconds)."""
        calls, self._calls = self._calls, []
        return calls


def _elapsed_ns(invoke: Callable[[], None]) -> int:
    started_ns = time.perf_counter_ns()
    invoke()
    return time.perf_counter_ns() - started_ns
