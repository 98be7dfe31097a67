"""Design spaces: which one a task is searched in, and how many schedules it has to choose from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from layoutlab.engine.relax.cpu_only import load_intrinsics
from layoutlab.engine.relax.tune.register_tiles import Registers, has_register_tiles, register_tiles
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.engine.relax.vectors import is_aarch64, vector_floats, vector_registers


def make_context(
    mod: tvm.IRModule,
    target: tvm.target.Target,
    strategy: meta_schedule.SearchStrategy,
    **options: Any,
) -> meta_schedule.TuneContext:
    """What searches the schedules of one task; `options` are further arguments of MetaSchedule's TuneContext."""
    load_intrinsics(target)
    return meta_schedule.TuneContext(
        mod=mod, target=target, space_generator=_generator(mod, target), search_strategy=strategy, **options
    )


def _generator(mod: tvm.IRModule, target: tvm.target.Target) -> meta_schedule.space_generator.SpaceGenerator:
    """Register tiles for the convolutions that have them, MetaSchedule's own rules for all else."""
    registers = registers_of(target)
    if not has_register_tiles(mod, registers):
        return meta_schedule.space_generator.PostOrderApply()
    return meta_schedule.space_generator.ScheduleFn(lambda sch: register_tiles(sch.mod, registers))


def registers_of(target: tvm.target.Target) -> Registers:
    """The vector registers of a target: what register tiles are made for."""
    return Registers(
        floats=vector_floats(target),
        count=vector_registers(target),
        inputs=4 if is_aarch64(target) else 1,
        cores=int(target.attrs.get("num-cores", 1)),
    )


def space_of(mod: tvm.IRModule, target: tvm.target.Target) -> int | None:
    """Points of all design spaces of one task, see `count_points`."""
    context = make_context(mod, target, meta_schedule.search_strategy.ReplayTrace(), rand_state=1, num_threads=1)
    return count_points(mod, context.generate_design_space())


def only_schedule(mod: tvm.IRModule, target: tvm.target.Target) -> meta_schedule.MeasureCandidate | None:
    """The schedule of a task whose space is one point; None where TVM's postprocessors refuse it."""
    context = make_context(mod, target, meta_schedule.search_strategy.ReplayTrace(), rand_state=1, num_threads=1)
    spaces = context.generate_design_space()
    context.pre_tuning(1, 1, spaces, meta_schedule.database.MemoryDatabase(), meta_schedule.cost_model.RandomModel())
    return next(iter(context.generate_measure_candidates() or []), None)


def count_points(mod: tvm.IRModule, spaces: Sequence[tvm.s_tir.Schedule]) -> int | None:
    """Points of the design spaces of one task: for each the product of its numbers of possible decisions, summed.

    Where a block may be computed is counted with every loop around its consumer, inlined and at the root: an upper
    bound, because loops of extent one are left out when a candidate is drawn. Different decisions may give the same
    code. None when a space samples something whose decisions cannot be counted.
    """
    total = 0
    for space in spaces:
        points = 1
        for number, instruction in enumerate(space.trace.insts):
            choices = _choices(mod, space.trace, number, instruction)
            if choices is None:
                return None
            points *= choices
        total += points
    return total


def _choices(mod: tvm.IRModule, trace: tvm.s_tir.Trace, number: int, instruction: Any) -> int | None:
    kind = str(instruction.kind.name)
    if not kind.startswith("Sample"):
        return 1
    if kind == "SampleCategorical":
        return len(instruction.attrs[0])
    if kind == "SamplePerfectTile":
        tiles = [int(tile) for tile in trace.decisions[instruction]]
        return factorisations(math.prod(tiles), len(tiles), int(instruction.attrs[1]))
    if kind == "SampleComputeLocation":
        return _locations(mod, trace, number, instruction)
    return None


def factorisations(extent: int, parts: int, largest_last: int = -1) -> int:
    """Ordered ways to write `extent` as a product of `parts` factors, the last at most `largest_last` (-1: any).

    A loop whose extent is not known has a single one: MetaSchedule leaves it whole.
    """
    if extent < 1:
        return 1
    if largest_last == -1:
        return math.prod(math.comb(power + parts - 1, parts - 1) for power in _prime_powers(extent))
    divisors = (divisor for divisor in range(1, min(extent, largest_last) + 1) if extent % divisor == 0)
    return sum(factorisations(extent // divisor, parts - 1) for divisor in divisors)


def _prime_powers(number: int) -> list[int]:
    """Exponents of the prime factors."""
    powers: list[int] = []
    prime = 2
    while number > 1:
        if prime * prime > number:
            return [*powers, 1]
        power = 0
        while number % prime == 0:
            number, power = number // prime, power + 1
        if power:
            powers.append(power)
        prime += 1
    return powers


def _locations(mod: tvm.IRModule, trace: tvm.s_tir.Trace, number: int, instruction: Any) -> int:
    """Loops around the block's first consumer, at the moment the location is chosen, and two: root and inlined."""
    before = tvm.s_tir.Trace(trace.insts[:number], trace.decisions)
    schedule = tvm.s_tir.Schedule(mod)
    before.apply_to_schedule(schedule, remove_postproc=False)
    block = _same_variable(trace, schedule.trace, instruction.inputs[0])
    consumers = schedule.get_consumers(block)
    return 2 + (len(schedule.get_loops(consumers[0])) if consumers else 0)


def _same_variable(trace: tvm.s_tir.Trace, replayed: tvm.s_tir.Trace, variable: Any) -> Any:
    """The variable of a replayed trace that stands where `variable` stands in the original."""
    for old, new in zip(trace.insts, replayed.insts, strict=False):
        for position, output in enumerate(old.outputs):
            if output.same_as(variable):
                return new.outputs[position]
    raise ValueError(f"the trace defines no {variable}")
