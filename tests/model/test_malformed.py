"""Malformed .tflite files: whatever they hold, the parent survives and says which file, at which stage, and why.

The worker that reads them may crash, hang or ask for all memory; that is what it is for.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from layoutlab.errors import LayoutlabError, ModelError
from layoutlab.measure.inputs import make_inputs, save_sets
from layoutlab.model.ask import ask_about
from layoutlab.process import Worker

from ..conftest import TINY
from ..test_cli import SPEC, layoutlab
from .malformed import IMPOSSIBLE, flipped, impossible, truncated

CONV = TINY / "tiny_conv.tflite"
MODELS = sorted(TINY.glob("*.tflite"))
MALFORMED = "parsing the TFLite flatbuffer: the file is malformed ("


class Readers:
    """Everything that a run reads a model with: its description, TVM's importer, TFLite; each a worker that is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._workers: dict[str, Worker] = {}

    def read(self, data: bytes) -> dict[str, str]:
        """Stage -> what the reader says against the file, "" for nothing."""
        path = self.folder / "model.tflite"
        path.write_bytes(data)
        found = {"import": self._ask("tvm", "preflight", {"path": str(path)})[0]}
        found["model"], described = self._ask("model", "describe_model", {"path": str(path)})
        if described is None:
            return found
        inputs, outputs = self.folder / "inputs.npz", self.folder / "outputs.npz"
        try:
            save_sets(inputs, make_inputs(described["inputs"], (-1.0, 1.0), 1, 1))
        except ModelError as error:
            return {**found, "inputs": str(error)}
        runner = {"kind": "tflite", "path": str(path), "threads": 1}
        arguments = {"runner": runner, "inputs": str(inputs), "outputs": str(outputs)}
        found["tflite"] = self._ask("tflite", "compute_outputs", arguments)[0]
        return found

    def _ask(self, reader: str, verb: str, arguments: dict) -> tuple[str, dict | None]:
        worker = self._workers.get(reader)
        if worker is None or not worker.alive:
            worker = self._workers[reader] = Worker(self.folder / "log", memory_bytes=1 << 30)
        try:
            value = worker.do(verb, arguments, timeout_s=120)
        except LayoutlabError as error:
            assert str(error)
            return str(error), None
        problems = value.get("problems", []) if verb == "preflight" else []
        return "; ".join(problem["reason"] for problem in problems), value

    def end(self) -> None:
        for worker in self._workers.values():
            worker.end()


@pytest.fixture(scope="module")
def readers(tmp_path_factory) -> Iterator[Readers]:
    with ExitStack() as stack:
        readers = Readers(tmp_path_factory.mktemp("malformed"))
        stack.callback(readers.end)
        yield readers


def test_truncated_files_are_malformed(readers):
    for data in truncated(CONV.read_bytes()):
        if data:
            found = readers.read(data)
            assert found["model"].startswith(MALFORMED)
            assert found["import"].startswith(MALFORMED)


def test_flipped_bits_are_read_without_harm(readers):
    counts: collections.Counter[bool] = collections.Counter()
    for seed in range(100, 140):
        counts[any(readers.read(flipped(MODELS[seed % len(MODELS)].read_bytes(), seed)).values())] += 1
    # A weight that is a little different is no damage that can be seen.
    assert counts[True] > 5 and counts[False] > 5


def too_large(shape: list[int], gib: str, sets: int = 1) -> str:
    return (
        f"input serving_default_input:0 {shape} float32: {sets} sets of inputs take at least {gib} GiB, and 1 GiB is "
        "the most; check.inputs in the spec says how many sets"
    )


def malformed(cause: str) -> tuple[str, str]:
    return "model", f"{MALFORMED}ValueError: {cause})"


ORDER = "operators have to stand in the order in which they run"
EXPECTED = {
    "an input of 120 GB": ("inputs", too_large([1, 100000, 100000, 3], "111.8")),
    "an input that overflows": ("inputs", too_large([2147483647] * 4, "7.923e+28")),
    "a negative input": malformed("tensor 0 has -7 as dimension 1"),
    "an empty input": (
        "inputs",
        "input serving_default_input:0 [1, 0, 16, 8] float32: every dimension should be at least 1",
    ),
    "an input of text": (
        "inputs",
        "input serving_default_input:0 [1, 16, 16, 8] string: no values of this type can be made; convert the model "
        "with numeric inputs",
    ),
    "input index out of range": malformed("operator 0 refers to tensor 1000000 of 13"),
    "input index below range": malformed("operator 0 refers to tensor -7 of 13"),
    "output index out of range": malformed("operator 0 refers to tensor 1000000 of 13"),
    "an operator that reads its own output": malformed(
        f"operator 0 reads tensor 8, which operator 0 computes: {ORDER}"
    ),
    "operators in reverse order": malformed(f"operator 0 reads tensor 11, which operator 1 computes: {ORDER}"),
    "buffer out of range": malformed("tensor 6 refers to buffer 1000000 of 16"),
    "operator code out of range": malformed("operator 0 refers to code 1000 of 4"),
    "no subgraph": malformed("it has no subgraph"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_files_are_refused(readers, name):
    found = readers.read(impossible(CONV, name))
    if name in EXPECTED:
        stage, message = EXPECTED[name]
        assert found[stage] == message
    else:  # TFLite's own words, which change from release to release
        assert found["tflite"].startswith("run: ")
        assert found["import"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (CONV.read_bytes()[:1024], f"{MALFORMED}error: unpack_from requires a buffer of at least "),
        (impossible(CONV, "buffer out of range"), f"{MALFORMED}ValueError: tensor 6 refers to buffer 1000000 of 16)"),
    ],
)
def test_an_error_names_the_file_and_the_stage(tmp_path, data, message):
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        ask_about("describe_model", path, tmp_path / "log")
    assert str(caught.value).startswith(f"{path}: {message}")


def test_a_model_that_costs_its_reader_the_process_names_the_file(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nfrom layoutlab import jobs\n"
        "def die(report, path):\n    report('stage', name='model')\n    os.abort()\n"
        "jobs.VERBS['describe_model'] = die\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    with pytest.raises(ModelError) as caught:
        ask_about("describe_model", CONV, tmp_path / "log")
    assert str(caught.value) == f"{CONV}: model: the process was killed by SIGABRT (log: {tmp_path / 'log'})"


def test_a_run_of_an_absurd_model_is_one_message(tmp_path):
    model = tmp_path / "model.tflite"
    model.write_bytes(impossible(CONV, "an input of 120 GB"))
    (tmp_path / "x.yaml").write_text(SPEC)
    done = layoutlab("run", "x.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    message = too_large([1, 100000, 100000, 3], "558.8", sets=5)
    assert done.stderr.splitlines()[-1] == f"error: {model}: making inputs: {message}"


@pytest.mark.slow
def test_every_cut_of_every_tiny_model(readers):
    for path in MODELS:
        for data in truncated(path.read_bytes()):
            if data:
                assert readers.read(data)["model"].startswith(MALFORMED)


ENDS = ("killed by", "ended with code", "of memory", "no sign of life")


@pytest.mark.slow
def test_a_thousand_flipped_bits(readers):
    said: collections.Counter[str] = collections.Counter()
    draw = random.Random(0)
    for _ in range(1000):
        path = draw.choice(MODELS)
        found = readers.read(flipped(path.read_bytes(), draw.randrange(1 << 30)))
        said.update(stage for stage, text in found.items() if text)
        said.update(end for end in ENDS if any(end in text for text in found.values()))
    print(dict(said))
    assert said["model"] and said["tflite"]
