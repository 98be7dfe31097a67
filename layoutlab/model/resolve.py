"""From a spec's `model` to a file that can be read: found, or built first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from layoutlab.errors import ModelError
from layoutlab.model.ask import ask_about
from layoutlab.model.file import ModelFile, read_model
from layoutlab.progress import Progress
from layoutlab.spec.load import LoadedSpec


def resolve_model(loaded: LoadedSpec, progress: Progress) -> ModelFile:
    """The model file of the spec, checked against its sha256; a `model.build` is built when it is not there yet.

    Built models are kept in `models/built/` beside the spec. Raises ModelError.
    """
    model = loaded.spec.model
    path = loaded.model_path
    if path is None:
        assert model.build is not None
        path = built_model(model.build, loaded.path.parent.resolve() / "models" / "built", progress)
    return read_model(path, model.sha256)


def bind_model(model: ModelFile, batch: int | None, folder: Path) -> ModelFile:
    """The model with its dynamic batch bound, as a copy in `folder`; without a `batch`, the model itself.

    Raises ModelError when the model's batch is not dynamic.
    """
    if batch is None:
        return model
    bound = folder.resolve() / f"{model.path.stem}-batch{batch}.tflite"
    ask_about("bind_batch", model.path, folder / "logs" / "model.log", batch=batch, bound=str(bound))
    return read_model(bound)


def built_model(name: str, folder: Path, progress: Progress) -> Path:
    """The file in `folder` of a model that layoutlab can build, built first when there is none. Else ModelError."""
    from layoutlab.model.build import file_name

    path = folder / file_name(name)
    if path.exists():
        return path
    progress.show(f"building {name} with TensorFlow (a minute or two)")
    # In a process of its own: TensorFlow takes gigabytes, and this process lives as long as the run.
    built = subprocess.run(
        [sys.executable, "-m", "layoutlab.model.build", name, "-o", str(folder)],
        capture_output=True,
        text=True,
    )
    if built.returncode != 0:
        lines = built.stderr.strip().splitlines() or ["no message"]
        raise ModelError(f"cannot build {name}: {lines[-1].removeprefix('error: ')}")
    progress.say(f"built {path}")
    return path
