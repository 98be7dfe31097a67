"""Best records into the module, weights packed, library written."""

from __future__ import annotations

import os
from collections.abc import Collection

from layoutlab.device.base import DeviceKind
from layoutlab.engine.relax.link import linker_for
from layoutlab.engine.relax.provenance.marks import marks_by_variable, name_functions, remark
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.errors import StageError

relax = tvm.relax


def apply_records(
    mod: tvm.IRModule,
    target: tvm.target.Target,
    database: meta_schedule.database.Database,
    pack_weights: bool,
    expected: Collection[str],
) -> tuple[tvm.IRModule, frozenset[str]]:
    """Replace tuned functions by their best schedule, and rewrite packed weights at compile time.

    Returns the module and the names of the functions that took a record.

    The weights are constants, so the rewriting that a schedule asks for is lifted out of the functions and
    folded: nothing is packed at run time. Raises StageError("build") when the function of an `expected` task took
    no record: the build would silently contain naive loops.
    """
    with target, database:
        # MetaScheduleApplyDatabase reads the target where it is constructed, not where it runs.
        mod = relax.transform.MetaScheduleApplyDatabase()(name_functions(mod))
        hits = frozenset(str(name.name_hint) for name, function in mod.functions.items() if _is_scheduled(function))
        _require_hits(expected, hits)
        if not pack_weights:
            return mod, hits
        # The splitting makes new calls, bound to the old variables.
        split = remark(relax.transform.SplitLayoutRewritePreproc()(mod), marks_by_variable(mod))
        packed = tvm.transform.Sequential(
            [
                relax.transform.LiftTransformParams(),
                relax.transform.FoldConstant(),
                # What the folding leaves: tuples of packed weights, made and taken apart again at each inference.
                relax.transform.CanonicalizeBindings(),
                relax.transform.DeadCodeElimination(["main"]),
            ]
        )(split)
        return packed, hits


def _require_hits(expected: Collection[str], hits: Collection[str]) -> None:
    missed = sorted(set(expected) - set(hits))
    if missed:
        raise StageError(
            "build",
            f"{len(missed)} of {len(expected)} tasks with a schedule did not take it: {', '.join(missed)}; "
            "their code would be naive loops",
        )


def _is_scheduled(function: tvm.ir.BaseFunc) -> bool:
    return function.attrs is not None and bool(function.attrs.get("tirx.is_scheduled", False))


def build_library(mod: tvm.IRModule, target: tvm.target.Target, path: str, device_kind: DeviceKind = "host") -> None:
    """Compile to a shared library at `path`, written under another name first so that it is whole or absent."""
    executable = tvm.compile(mod, target=target)
    partial = path + ".partial.so"
    executable.export_library(partial, fcompile=linker_for(device_kind))
    os.replace(partial, path)
