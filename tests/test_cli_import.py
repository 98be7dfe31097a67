"""`layoutlab import` as users meet it: whole outputs and exit codes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from layoutlab.engine.preflight import Problem
from layoutlab.errors import ModelError, StageError
from layoutlab.process import run_job
from layoutlab.report.preflight import check_import

from .conftest import TINY
from .test_cli import layoutlab
from .tflite_files import edited, op_type

CONV = TINY / "tiny_conv.tflite"
NO_RNN = "TVM's importer has no converter for RNN; build the model without it"
NO_SKIP_GRAM = "TVM's importer has no converter for SKIP_GRAM; build the model without it"


@pytest.fixture
def folder(tmp_path) -> Path:
    shutil.copy(CONV, tmp_path / "model.tflite")
    # The first two share a reason.
    (tmp_path / "broken.tflite").write_bytes(
        edited(CONV, op_type(0, "RNN"), op_type(1, "RNN"), op_type(3, "SKIP_GRAM"))
    )
    return tmp_path


def outputs(folder: Path, model: str) -> list[str]:
    """Names of the first outputs of the operators."""
    found = run_job("preflight", {"path": str(folder / model)}, log=folder / "log")
    return [problem["output"] for problem in found["problems"]]


def test_a_model_that_can_be_imported_is_one_line(folder):
    done = layoutlab("import", "model.tflite", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "model.tflite: fine, 5 operators (2 CONV_2D, 1 FULLY_CONNECTED, 1 MEAN, 1 SOFTMAX); "
        "input serving_default_input:0 [1, 16, 16, 8] float32; output StatefulPartitionedCall_1:0 [1, 16] float32\n"
    )


def test_all_problems_are_shown_under_their_reasons(folder):
    done = layoutlab("import", "broken.tflite", cwd=folder)
    assert (done.returncode, done.stderr) == (2, "")
    first, second, third = outputs(folder, "broken.tflite")
    assert (
        done.stdout
        == f"""\
broken.tflite: it cannot be imported: 3 problems

{NO_RNN}:
  op 0 RNN, output {first} [1, 16, 16, 16]
  op 1 RNN, output {second} [1, 16, 16, 32]

{NO_SKIP_GRAM}:
  op 3 SKIP_GRAM, output {third} [1, 16]
"""
    )


def test_as_json(folder):
    done = layoutlab("import", "model.tflite", "--json", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "model": "model.tflite",
        "importable": True,
        "inputs": [{"name": "serving_default_input:0", "shape": [1, 16, 16, 8], "dtype": "float32"}],
        "outputs": [{"name": "StatefulPartitionedCall_1:0", "shape": [1, 16], "dtype": "float32"}],
        "op_counts": {"CONV_2D": 2, "FULLY_CONNECTED": 1, "MEAN": 1, "SOFTMAX": 1},
        "problems": [],
    }
    done = layoutlab("import", "broken.tflite", "--json", cwd=folder)
    assert (done.returncode, done.stderr) == (2, "")
    found = json.loads(done.stdout)
    assert found["importable"] is False
    assert found["op_counts"] == {"RNN": 2, "MEAN": 1, "SKIP_GRAM": 1, "SOFTMAX": 1}
    assert found["problems"][2] == {
        "reason": NO_SKIP_GRAM,
        "op": 3,
        "subgraph": 0,
        "type": "SKIP_GRAM",
        "output": outputs(folder, "broken.tflite")[2],
        "shape": [1, 16],
        "input": None,
    }


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda model: model.unlink(), "error: no model file at model.tflite\n"),
        (lambda model: model.write_bytes(b""), "error: model.tflite is empty\n"),
        (
            lambda model: model.write_bytes(b"not a model at all"),
            "error: model.tflite is not a TFLite flatbuffer: bytes 4..8 should be b'TFL3', but are b'a mo'\n",
        ),
    ],
)
def test_a_file_that_is_no_model(folder, break_it, message):
    break_it(folder / "model.tflite")
    done = layoutlab("import", "model.tflite", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


@pytest.mark.parametrize("length", [12, 2000, 11000])
def test_a_truncated_model_is_one_message(folder, length):
    model = folder / "model.tflite"
    model.write_bytes(model.read_bytes()[:length])
    done = layoutlab("import", "model.tflite", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: model.tflite: parsing the TFLite flatbuffer: the file is malformed (")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("stage", "kind", "message"),
    [
        ("import", ModelError, "{path}: it cannot be imported: TVM's importer failed: killed"),
        ("start", StageError, "start: killed"),
    ],
)
def test_a_worker_that_dies(folder, monkeypatch, stage, kind, message):
    """In the import it is the model's fault; before it, it is the installation's."""

    def die(*_, **__):
        raise StageError(stage, "killed", "a log that is gone by the time it is read")

    monkeypatch.setattr("layoutlab.report.preflight.run_job", die)
    path = folder / "model.tflite"
    with pytest.raises(kind) as caught:
        check_import(path)
    assert str(caught.value) == message.format(path=path)


def test_the_parent_imports_neither_tvm_nor_litert(folder):
    code = (
        "import sys\nfrom layoutlab.cli import main\nassert main(['import', 'model.tflite']) == 0\n"
        "print([name for name in ('tvm', 'tflite', 'ai_edge_litert') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_import_without_a_model(folder):
    done = layoutlab("import", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.endswith("layoutlab import: error: the following arguments are required: MODEL\n")


def test_places():
    assert Problem(reason="").place() == "the model"
    assert Problem(reason="", input="x").place() == "input x"
    assert Problem(reason="", op=3, type="VAR_HANDLE").place() == "op 3 VAR_HANDLE"
    assert Problem(reason="", op=3, subgraph=2, type="ADD", output="y", shape=(1,)).place() == (
        "op 3 of subgraph 2 ADD, output y [1]"
    )
