"""A .tflite file as data: read once, checked, and known by its sha256."""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from layoutlab.errors import ModelError

MAX_BYTES = 1 << 30
IDENTIFIER = b"TFL3"  # bytes 4..8 of every TFLite flatbuffer: the schema's file_identifier


@dataclass(frozen=True)
class ModelFile:
    """The content of a model file, and its sha256 as 64 lower-case hex digits."""

    path: Path
    data: bytes = field(repr=False)
    sha256: str


def read_model(path: str | Path, sha256: str | None = None) -> ModelFile:
    """Read the .tflite file at `path` and, if `sha256` is given, check that it is that very file.

    Raises ModelError if there is no such file, if it cannot be read, is empty or larger than 1 GiB,
    is not a TFLite flatbuffer, or has another hash. The content is not parsed any further.
    """
    path = Path(path)
    data = _read(path)
    if data[4:8] != IDENTIFIER:
        raise ModelError(
            f"{path} is not a TFLite flatbuffer: bytes 4..8 should be {IDENTIFIER!r}, but are {data[4:8]!r}"
        )
    found = hashlib.sha256(data).hexdigest()
    if sha256 is not None and found != sha256.lower():
        raise ModelError(
            f"{path} is not the file the spec names:\n"
            f"  expected sha256 {sha256}\n"
            f"  found sha256    {found}\n"
            "If the file was meant to change, put the new hash into the spec; if not, restore the file."
        )
    return ModelFile(path, data, found)


def _read(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise ModelError(f"{path} is a directory, not a .tflite file")
        size = path.stat().st_size
        if not path.is_file():  # a pipe or a device, which may never end
            raise ModelError(f"{path} is not a regular file")
        if size > MAX_BYTES:
            raise ModelError(f"{path} has {size} bytes; models over 1 GiB ({MAX_BYTES} bytes) are not read")
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"no model file at {path}{_suggestion(path)}") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"cannot read the model file {path}: {reason}") from error
    if not data:
        raise ModelError(f"{path} is empty")
    return data


def _suggestion(path: Path) -> str:
    """What may have been meant by the missing `path`, as the end of a sentence, or nothing."""
    try:
        stems = sorted(entry.stem for entry in path.parent.iterdir() if entry.suffix == ".tflite")
    except OSError:
        return f": there is no directory {path.parent}" if not path.parent.exists() else ""
    close = difflib.get_close_matches(path.stem, stems)
    if not close:
        return ""
    return "; did you mean " + " or ".join(str(path.parent / f"{stem}.tflite") for stem in close) + "?"
