"""Which design space a task is searched in."""

from __future__ import annotations

from layoutlab.engine.relax.tune.register_tiles import Registers, register_tiles
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.engine.relax.vectors import is_aarch64, vector_floats, vector_registers


def space_generator(mod: tvm.IRModule, target: tvm.target.Target) -> meta_schedule.space_generator.SpaceGenerator:
    """Register tiles for the convolutions that have them, MetaSchedule's own rules for all else."""
    registers = registers_of(target)
    spaces = register_tiles(mod, registers)
    if not spaces:
        return meta_schedule.space_generator.PostOrderApply()
    return meta_schedule.space_generator.ScheduleFn(lambda sch: register_tiles(sch.mod, registers))


def registers_of(target: tvm.target.Target) -> Registers:
    """The vector registers of a target: what register tiles are made for."""
    return Registers(
        floats=vector_floats(target),
        count=vector_registers(target),
        inputs=4 if is_aarch64(target) else 1,
        cores=int(target.attrs["num-cores"]),
    )
