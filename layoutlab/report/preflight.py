"""Whether TVM can import a model: asked of a worker process, and told as text."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from layoutlab.engine.base import from_json, to_json
from layoutlab.engine.preflight import Preflight, by_reason
from layoutlab.errors import ModelError, StageError
from layoutlab.model.ask import memory_bytes
from layoutlab.model.describe import TensorInfo
from layoutlab.model.file import read_model
from layoutlab.process import run_job

_TIMEOUT_S = 600.0


def check_import(path: Path) -> Preflight:
    """What TVM's importer makes of the model at `path`.

    Raises ModelError when there is no such file, when it is no TFLite model, and when the importer ends its process.
    """
    model = read_model(path)
    with tempfile.TemporaryDirectory(prefix="layoutlab-") as folder:
        try:
            value = run_job(
                "preflight",
                {"path": str(model.path)},
                log=Path(folder) / "import.log",
                timeout_s=_TIMEOUT_S,
                memory_bytes=memory_bytes(model.path),
            )
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from None
        except StageError as error:
            if error.stage != "import":
                raise StageError(error.stage, error.cause) from None  # the log goes with the folder
            raise ModelError(f"{path}: it cannot be imported: TVM's importer failed: {error.cause}") from None
    return from_json(Preflight, value)


def preflight_text(path: Path, found: Preflight) -> str:
    """One line for a model that can be imported; else every problem, under its reason."""
    if found.is_importable:
        parts = [_operators(found), _tensors("input", found.inputs), _tensors("output", found.outputs)]
        return f"{path}: fine, {'; '.join(parts)}"
    count = len(found.problems)
    lines = [f"{path}: it cannot be imported: {count} problem{'s' if count > 1 else ''}"]
    for reason, problems in by_reason(found.problems).items():
        lines += ["", f"{reason}:", *(f"  {problem.place()}" for problem in problems)]
    return "\n".join(lines)


def preflight_json(path: Path, found: Preflight) -> str:
    """The same as JSON."""
    return json.dumps({"model": str(path), "importable": found.is_importable, **to_json(found)}, indent=1)


def _operators(found: Preflight) -> str:
    total = sum(found.op_counts.values())
    kinds = ", ".join(f"{count} {kind}" for kind, count in found.op_counts.items())
    return f"{total} operator{'' if total == 1 else 's'}" + (f" ({kinds})" if kinds else "")


def _tensors(role: str, tensors: tuple[TensorInfo, ...]) -> str:
    shown = ", ".join(f"{tensor.name} {list(tensor.shape)} {tensor.dtype}" for tensor in tensors)
    return f"{role} {shown}" if len(tensors) == 1 else f"{role}s {shown or 'none'}"
