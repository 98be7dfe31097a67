import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from layoutlab.model.file import read_model
from layoutlab.model.weights import smooth_input

TINY = ["tiny_conv", "tiny_mobilenet", "tiny_odd", "tiny_dense"]
FILES = ["mobilenet_v3_large_minimalistic_224.tflite", *(f"tiny/{name}.tflite" for name in TINY)]
SEEDS = range(5)


def run(path: Path) -> np.ndarray:
    """The outputs, one row per seeded input."""
    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    (source,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    rows = []
    for seed in SEEDS:
        interpreter.set_tensor(source["index"], smooth_input(tuple(source["shape"]), seed))
        interpreter.invoke()
        rows.append(interpreter.get_tensor(result["index"])[0])
    return np.array(rows)


@pytest.mark.parametrize("name", FILES)
def test_size_and_hash_are_those_of_the_readme(models: Path, name: str) -> None:
    (row,) = re.findall(rf"^\| `{re.escape(name)}` \|.*", (models / "README.md").read_text(), re.MULTILINE)
    size, sha256 = re.search(r"\| (\d+) \| `([0-9a-f]{64})` \|", row).groups()
    file = read_model(models / name, sha256)
    assert len(file.data) == int(size)
    assert len(file.data) < (300_000 if name.startswith("tiny/") else 17_000_000)
    assert hashlib.sha256(file.data).hexdigest() == sha256


def test_every_committed_model_is_tested(models: Path) -> None:
    found = {str(path.relative_to(models)) for path in [*models.glob("*.tflite"), *models.glob("tiny/*")]}
    assert found == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_outputs_are_spread_out(models: Path, name: str) -> None:
    outputs = run(models / name)
    assert np.isfinite(outputs).all()
    np.testing.assert_allclose(outputs.sum(axis=1), 1.0, rtol=1e-4)
    top = outputs.max(axis=1)
    assert (top >= 0.2).sum() >= 4, top
    assert (top < 0.999).all(), top
    assert len(set(outputs.argmax(axis=1))) >= 3
    # Inputs can be told apart by far more than a tolerance of any numerics check.
    for i in SEEDS:
        for j in range(i):
            assert np.abs(outputs[i] - outputs[j]).max() > 0.05


@pytest.mark.parametrize("shape", [(1, 17, 23, 3), (1, 64), (1, 8, 8, 1)])
def test_smooth_input_is_seeded_and_fills_the_range(shape: tuple[int, ...]) -> None:
    image = smooth_input(shape, 3)
    assert image.shape == shape and image.dtype == np.float32
    assert np.abs(image).max() == pytest.approx(1.0)
    np.testing.assert_array_equal(image, smooth_input(shape, 3))
    assert np.abs(image - smooth_input(shape, 4)).max() > 0.1


def test_smooth_input_changes_slowly_from_pixel_to_pixel() -> None:
    image = smooth_input((1, 224, 224, 3), 0)
    assert np.abs(np.diff(image, axis=1)).max() < 0.2
