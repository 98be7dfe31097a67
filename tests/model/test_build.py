import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from layoutlab.errors import UsageError
from layoutlab.model import build as builder
from layoutlab.model.file import read_model
from tests.model import TINY


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("mobilenet_v3_large_minimalistic", "mobilenet_v3_large_minimalistic_224.tflite"),
        ("inception_v3", "inception_v3_299.tflite"),
        ("tiny_conv", "tiny_conv.tflite"),
    ],
)
def test_file_name(name: str, file: str) -> None:
    assert builder.file_name(name) == file


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no model named 'vgg' to build; the names are: mobilenet_v1, "):
        builder.build("vgg")


def test_unknown_name_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert builder.main(["vgg"]) == 2
    assert capsys.readouterr().err.startswith("error: no model named 'vgg'")


def test_missing_tensorflow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras", None)
    with pytest.raises(UsageError) as caught:
        builder.build("tiny_conv")
    assert "needs TensorFlow" in str(caught.value)
    assert str(caught.value).endswith("install the extra with .venv/bin/pip install -e '.[models]'")


def test_importing_the_builder_imports_no_tensorflow() -> None:
    code = "import sys, layoutlab.model.build; sys.exit('tensorflow' in sys.modules or 'keras' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_rebuilding_gives_the_committed_bytes(models: Path, name: str) -> None:
    pytest.importorskip("tensorflow")
    committed = read_model(models / "tiny" / builder.file_name(name))
    assert hashlib.sha256(builder.build(name)).hexdigest() == committed.sha256


@pytest.mark.slow
def test_another_seed_gives_another_file() -> None:
    pytest.importorskip("tensorflow")
    assert builder.build("tiny_dense", seed=2) != builder.build("tiny_dense", seed=1)


@pytest.mark.slow
def test_command_line_writes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorflow")
    assert builder.main(["tiny_odd", "-o", str(tmp_path / "new")]) == 0
    file = read_model(tmp_path / "new" / "tiny_odd.tflite")
    expected = f"{file.path}  {len(file.data)} bytes  sha256 {file.sha256}\n"
    assert capsys.readouterr().out == expected


def test_the_names_that_can_be_built() -> None:
    applications = {
        "mobilenet_v1",
        "mobilenet_v2",
        "mobilenet_v3_small",
        "mobilenet_v3_large",
        "mobilenet_v3_small_minimalistic",
        "mobilenet_v3_large_minimalistic",
        "resnet50",
        "inception_v3",
    }
    assert set(builder.BUILDERS) == applications | set(TINY)
