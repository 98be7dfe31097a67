"""Asking a worker process about a model file: bounded in time and memory, and an error names the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from layoutlab.errors import ModelError, StageError
from layoutlab.process import run_job

_TIMEOUT_S = 120.0
# TVM and LiteRT take half a gigabyte by themselves; then each holds the weights, and makes copies of them.
_MEMORY_BYTES, _MEMORY_FOR_EACH_BYTE = 4 << 30, 8


def memory_bytes(path: Path) -> int:
    """What a process that reads the model file at `path` may have."""
    return _MEMORY_BYTES + _MEMORY_FOR_EACH_BYTE * path.stat().st_size


def ask_about(verb: str, path: Path, log: Path, *, timeout_s: float = _TIMEOUT_S, **arguments: Any) -> Any:
    """What `verb` (see `layoutlab.jobs`) answers about the model file at `path`.

    ModelError, with the path, the stage and the cause, when the file cannot be read as a model, and also when reading
    it ends the process, or takes more time or memory than any such file needs.
    """
    asked = {"path": str(path), **arguments}
    try:
        return run_job(verb, asked, log=log, timeout_s=timeout_s, memory_bytes=memory_bytes(path))
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    except StageError as error:
        if error.stage == "start":  # not the file's fault
            raise
        raise ModelError(f"{path}: {error}") from error
