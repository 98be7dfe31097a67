"""Best records into the module, weights packed, library written."""

from __future__ import annotations

import os

from layoutlab.device.base import DeviceKind
from layoutlab.engine.relax.link import linker_for
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.errors import StageError

relax = tvm.relax


def apply_records(
    mod: tvm.IRModule,
    target: tvm.target.Target,
    database: meta_schedule.database.Database,
    pack_weights: bool,
    expected: int,
) -> tvm.IRModule:
    """Replace tuned functions by their best schedule, and rewrite packed weights at compile time.

    The weights are constants, so the rewriting that a schedule asks for is lifted out of the functions and
    folded: nothing is packed at run time. Raises StageError("build") when fewer functions than the `expected`
    number of tuned tasks took a record: the build would silently contain naive loops.
    """
    with target, database:
        # MetaScheduleApplyDatabase reads the target where it is constructed, not where it runs.
        mod = relax.transform.MetaScheduleApplyDatabase()(mod)
        hits = sum(_is_scheduled(function) for function in mod.functions.values())
        if hits < expected:
            raise StageError("build", f"{expected} tasks have a tuning record, but only {hits} functions took one")
        if not pack_weights:
            return mod
        return tvm.transform.Sequential(
            [
                relax.transform.SplitLayoutRewritePreproc(),
                relax.transform.LiftTransformParams(),
                relax.transform.FoldConstant(),
                # What the folding leaves: tuples of packed weights, made and taken apart again at each inference.
                relax.transform.CanonicalizeBindings(),
                relax.transform.DeadCodeElimination(["main"]),
            ]
        )(mod)


def _is_scheduled(function: tvm.ir.BaseFunc) -> bool:
    return function.attrs is not None and bool(function.attrs.get("tirx.is_scheduled", False))


def build_library(mod: tvm.IRModule, target: tvm.target.Target, path: str, device_kind: DeviceKind = "host") -> None:
    """Compile to a shared library at `path`, written under another name first so that it is whole or absent."""
    executable = tvm.compile(mod, target=target)
    partial = path + ".partial.so"
    executable.export_library(partial, fcompile=linker_for(device_kind))
    os.replace(partial, path)
