"""A .tflite file as a Relax module."""

from __future__ import annotations

import tflite
import tvm
from tvm.relax.frontend.tflite import from_tflite

from layoutlab.errors import StageError


def import_model(data: bytes) -> tvm.IRModule:
    """Import the model; the weights become constants of `main`, the layouts are TFLite's (NHWC, HWIO, HWOI).

    Raises StageError("import") with the importer's own reason: TVM 0.27's importer raises anything from
    OpNotImplemented to a bare TypeError, and all of it means the model cannot be imported.
    """
    try:
        return from_tflite(tflite.Model.GetRootAsModel(data, 0))
    except Exception as error:
        reason = " ".join(str(error).split()) or "no reason given"
        raise StageError("import", f"TVM cannot import this model: {type(error).__name__}: {reason}") from error
