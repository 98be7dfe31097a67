import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from layoutlab.model.file import read_model
from layoutlab.model.weights import smooth_input
from tests.model import TINY

FILES = ["mobilenet_v3_large_minimalistic_224.tflite", *(f"tiny/{name}.tflite" for name in TINY)]
SEEDS = range(5)


def run(path: Path) -> list[np.ndarray]:
    """Every output, with one row per seeded input; what is quantised is quantised and brought back here."""
    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    (source,), results = interpreter.get_input_details(), interpreter.get_output_details()
    rows = []
    for seed in SEEDS:
        interpreter.set_tensor(source["index"], quantised(smooth_input(tuple(source["shape"]), seed), source))
        interpreter.invoke()
        rows.append([dequantised(interpreter.get_tensor(result["index"])[0], result) for result in results])
    return [np.array(output) for output in zip(*rows, strict=True)]


def quantised(values: np.ndarray, details: dict[str, Any]) -> np.ndarray:
    scale, zero = details["quantization"]
    if details["dtype"] == np.float32:
        return values
    limits = np.iinfo(details["dtype"])
    return np.clip(np.round(values / scale) + zero, limits.min, limits.max).astype(details["dtype"])


def dequantised(values: np.ndarray, details: dict[str, Any]) -> np.ndarray:
    scale, zero = details["quantization"]
    return values if values.dtype == np.float32 else (values.astype(np.float32) - zero) * np.float32(scale)


def probabilities(path: Path) -> np.ndarray:
    (rows,) = (output for output in run(path) if output.ndim == 2)
    return rows


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
    outputs = probabilities(models / name)
    assert np.isfinite(outputs).all()
    rounding = outputs.shape[1] / 2 / 256 if "int8" in name else 1e-4
    np.testing.assert_allclose(outputs.sum(axis=1), 1.0, rtol=rounding)
    top = outputs.max(axis=1)
    assert (top >= 0.2).sum() >= 4, top
    assert (top < 0.999).all(), top
    assert len(set(outputs.argmax(axis=1))) >= 3
    # Inputs can be told apart by far more than a tolerance of any numerics check.
    for i in SEEDS:
        for j in range(i):
            assert np.abs(outputs[i] - outputs[j]).max() > 0.05


def test_map_is_spread_out(models: Path) -> None:
    (maps,) = (output[..., 0] for output in run(models / "tiny/tiny_resize.tflite") if output.ndim == 4)
    assert (maps >= 0).all() and (maps <= 1).all()
    assert (maps.min(axis=(1, 2)) < 0.1).all() and (maps.max(axis=(1, 2)) > 0.9).all()
    assert (maps.std(axis=(1, 2)) > 0.2).all()
    for i in SEEDS:
        for j in range(i):
            assert np.median(np.abs(maps[i] - maps[j])) > 0.1
        # Shifted by a pixel, or mirrored, it is another map.
        for moved in (maps[i, 1:] - maps[i, :-1], maps[i, :, 1:] - maps[i, :, :-1]):
            assert np.abs(moved).mean() > 0.02
        for mirrored in (maps[i, ::-1], maps[i, :, ::-1]):
            assert np.abs(maps[i] - mirrored).mean() > 0.1


def test_dynamic_model_is_tiny_conv_at_any_batch(models: Path) -> None:
    expected = probabilities(models / "tiny/tiny_conv.tflite")
    path = models / "tiny/tiny_dynamic.tflite"
    np.testing.assert_allclose(probabilities(path), expected, atol=1e-6)

    interpreter = Interpreter(str(path), num_threads=1)
    (source,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    assert source["shape_signature"].tolist() == [-1, 16, 16, 8]
    interpreter.resize_tensor_input(source["index"], (len(SEEDS), 16, 16, 8), strict=True)
    interpreter.allocate_tensors()
    batch = np.concatenate([smooth_input((1, 16, 16, 8), seed) for seed in SEEDS])
    interpreter.set_tensor(source["index"], batch)
    interpreter.invoke()
    np.testing.assert_allclose(interpreter.get_tensor(result["index"]), expected, atol=1e-6)


def test_quantised_model_follows_the_float_one(models: Path) -> None:
    floats = probabilities(models / "tiny/tiny_mobilenet.tflite")
    integers = probabilities(models / "tiny/tiny_int8.tflite")
    assert np.abs(integers - floats).max() < 0.2
    for i in SEEDS:
        agreement = [np.corrcoef(integers[i], row)[0, 1] for row in floats]
        assert np.argmax(agreement) == i
        assert agreement[i] > 0.9


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
