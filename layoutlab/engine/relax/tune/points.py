"""The points of a task's design spaces: enumerated in order, or drawn uniformly.

A design space is a trace: scheduling instructions, some of which sample a decision (a tiling, a place to compute at,
an amount of unrolling). What there is to choose from may depend on earlier decisions, so the options are asked for
while the trace is applied.
"""

from __future__ import annotations

import functools
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.errors import StageError

_LOGGER = logging.getLogger("layoutlab.tuning")
# After so many points in a row that TVM refuses, or that were drawn before, the space is taken for used up.
_MOST_REFUSED = 1000
_MOST_REPEATED = 200

# Gets the number of options of a decision; returns which one is taken.
Choose = Callable[[int], int]
Space = Callable[[Choose], "Point | None"]


@dataclass(frozen=True, kw_only=True)
class Point:
    """A design space with all its decisions made. `key` is the same text for the same point in any process."""

    schedule: tvm.s_tir.Schedule
    key: str


def next_candidates(
    points: Iterator[Point], postprocessors: Sequence[Any], tried: set[str], count: int
) -> list[meta_schedule.MeasureCandidate]:
    """Up to `count` candidates from `points` that are not in `tried`, to which they are added; fewer at the end.

    Points that TVM's postprocessors refuse cannot be built and are passed over.
    """
    candidates: list[Any] = []
    refused = 0
    for point in points if count else ():
        if point.key in tried:
            continue
        tried.add(point.key)
        candidate = _candidate(point, postprocessors)
        refused = refused + 1 if candidate is None else 0
        candidates += [] if candidate is None else [candidate]
        if len(candidates) == count or refused == _MOST_REFUSED:
            break
    return candidates


def _candidate(point: Point, postprocessors: Sequence[Any]) -> meta_schedule.MeasureCandidate | None:
    schedule = point.schedule
    schedule.enter_postproc()
    try:
        if not all(postprocessor.apply(schedule) for postprocessor in postprocessors):
            return None
    except tvm.s_tir.ScheduleError as error:
        _LOGGER.warning("a point of the design space cannot be built: %s", error)
        return None
    arguments = meta_schedule.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
    return meta_schedule.MeasureCandidate(schedule, arguments)


def key_of(trace: tvm.s_tir.schedule.Trace) -> str:
    """What tells points apart: the trace with its decisions, up to the postprocessors."""
    return "\n".join(map(str, trace.as_python(remove_postproc=True)))


def tried_keys(database: meta_schedule.database.Database, mod: tvm.IRModule) -> set[str]:
    """Keys of the points of `mod` that have a record."""
    if not database.has_workload(mod):
        return set()
    workload = database.commit_workload(mod)
    return {key_of(record.trace) for record in database.get_all_tuning_records() if record.workload.same_as(workload)}


def design_spaces(mod: tvm.IRModule, schedules: Iterable[tvm.s_tir.Schedule]) -> list[Space]:
    """Each design space (a schedule that was sampled from it) as a function from a choice to a point.

    The function returns None where the decisions contradict each other, which TVM finds only by applying them.
    """
    return [functools.partial(_point, mod, schedule.trace.simplified(True)) for schedule in schedules]


def in_order(spaces: Sequence[Space]) -> Iterator[Point]:
    """Every point once: spaces one after the other, decisions in lexicographic order, the last one fastest."""
    for space in spaces:
        digits: list[int] = []
        more = True
        while more:
            counts: list[int] = []
            point = space(functools.partial(_digit, digits, counts))
            if point is not None:
                yield point
            more = _advance(digits, counts)


def _digit(digits: list[int], counts: list[int], options: int) -> int:
    counts.append(options)
    if len(counts) > len(digits):
        digits.append(0)
    return digits[len(counts) - 1]


def _advance(digits: list[int], counts: Sequence[int]) -> bool:
    """Count one up, as a clock does whose digits have `counts` values; False when it was the last point."""
    while digits and digits[-1] + 1 >= counts[len(digits) - 1]:
        digits.pop()
    if digits:
        digits[-1] += 1
    return bool(digits)


def at_random(spaces: Sequence[Space], seed: int) -> Iterator[Point]:
    """Points without repetition: a space, then each decision, drawn uniformly. Ends when hardly any is new."""
    generator = random.Random(seed)
    seen: set[str] = set()
    repeated = 0
    while repeated < _MOST_REPEATED:
        point = generator.choice(spaces)(generator.randrange)
        repeated += 1
        if point is not None and point.key not in seen:
            repeated = 0
            seen.add(point.key)
            yield point


def _point(mod: tvm.IRModule, trace: tvm.s_tir.schedule.Trace, choose: Choose) -> Point | None:
    schedule = tvm.s_tir.Schedule(mod, debug_mask=0, error_render_level="none")

    def decide(instruction: Any, inputs: Any, attributes: Any, decision: Any) -> Any:
        options = _OPTIONS.get(str(instruction.kind.name))
        if options is None:
            if decision is None:
                return None
            raise StageError("tune", f"a search by points cannot enumerate {instruction.kind.name}: use evolutionary")
        values = options(schedule, inputs, attributes)
        return values[choose(len(values))]

    try:
        trace.apply_to_schedule(schedule, remove_postproc=True, decision_provider=decide)
    except tvm.s_tir.ScheduleError as error:
        _LOGGER.warning("a point of the design space cannot be scheduled: %s", error)
        return None
    return Point(schedule=schedule, key=key_of(schedule.trace))


def _tilings(schedule: tvm.s_tir.Schedule, inputs: Any, attributes: Any) -> list[list[int]]:
    parts, largest_innermost = (int(attribute) for attribute in attributes)
    return _factorisations(int(schedule.get(inputs[0]).extent), parts, largest_innermost)


@functools.cache
def _factorisations(extent: int, parts: int, largest_innermost: int) -> list[list[int]]:
    """Every way to write `extent` as a product of so many factors, in order; the last is limited (-1: it is not)."""
    if parts == 1:
        return [[extent]] if largest_innermost == -1 or extent <= largest_innermost else []
    return [
        [factor, *rest]
        for factor in range(1, extent + 1)
        if extent % factor == 0
        for rest in _factorisations(extent // factor, parts - 1, largest_innermost)
    ]


def _categories(schedule: tvm.s_tir.Schedule, inputs: Any, attributes: Any) -> list[int]:
    return list(range(len(attributes[0])))


def _locations(schedule: tvm.s_tir.Schedule, inputs: Any, attributes: Any) -> list[int]:
    """Where a block may be computed: inlined (-2), at the root (-1), or in one of the loops of its consumer.

    TVM does not tell them. But of a decision that is not possible it takes the next smaller that is, and the root
    always is: so going down from a large one visits them all.
    """
    probe = schedule.copy()
    found = [_taken(probe, inputs[0], _BEYOND_LOOPS)]
    while (smaller := _taken(probe, inputs[0], found[-1] - 1)) < found[-1]:
        found.append(smaller)
    return found[::-1]


def _taken(schedule: tvm.s_tir.Schedule, block: Any, decision: int) -> int:
    schedule.sample_compute_location(block, decision=decision)
    return int(schedule.trace.decisions[schedule.trace.insts[-1]])


_BEYOND_LOOPS = 1_000_000
_OPTIONS: dict[str, Callable[..., list[Any]]] = {
    "SamplePerfectTile": _tilings,
    "SampleCategorical": _categories,
    "SampleComputeLocation": _locations,
}
