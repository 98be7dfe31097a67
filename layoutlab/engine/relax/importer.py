"""A .tflite file as a Relax module."""

from __future__ import annotations

from collections.abc import Sequence

import tflite
import tvm

from layoutlab.engine.preflight import Problem, by_reason
from layoutlab.engine.relax.preflight import name_problems, one_line, preflight
from layoutlab.engine.relax.provenance.imported import from_tflite_marked
from layoutlab.errors import ModelError, StageError

# The cause of a failed import is one line: so many problems are named in it.
_NAMED = 5


def import_model(data: bytes) -> tvm.IRModule:
    """Import the model; the weights become constants of `main`, the layouts are TFLite's (NHWC, HWIO, HWOI). Each
    call is marked with the operator that it is part of (`provenance.marks`).

    Raises StageError("import") that names all there is to fix: TVM 0.27's importer stops at the first operator it
    cannot convert, with anything from OpNotImplemented to a bare TypeError, and mixes up tensors named alike.
    """
    try:
        mod = from_tflite_marked(tflite.Model.GetRootAsModel(data, 0))
    except Exception as error:
        raise _failure(_cause(data, error)) from error
    # The one problem that from_tflite does not notice.
    alike = name_problems(data)
    if alike:
        raise _failure(_summary(alike))
    return mod


def _failure(cause: str) -> StageError:
    return StageError("import", f"TVM cannot import this model: {cause}")


def _cause(data: bytes, error: Exception) -> str:
    """All that keeps the model from being imported, on one line; TVM's own `error` where nothing else is known."""
    try:
        problems = preflight(data).problems
    except ModelError as malformed:
        return str(malformed)
    return _summary(problems) or one_line(error)


def _summary(problems: Sequence[Problem]) -> str:
    groups = by_reason(problems[:_NAMED])
    parts = [f"{', '.join(p.place() for p in group)}: {reason}" for reason, group in groups.items()]
    if len(problems) > _NAMED:
        parts.append(f"and {len(problems) - _NAMED} more (all of them: layoutlab import MODEL)")
    return "; ".join(parts)
