"""Seeded inputs, and sets of arrays on disk between processes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from layoutlab.errors import ModelError
from layoutlab.model.weights import smooth_input

# Types of inputs, as numpy and the TFLite schema name them.
_DTYPES = frozenset(
    {"float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"}
)
# The parent makes inputs itself, so a shape that is absurd must not cost it its memory.
_MOST_BYTES = 1 << 30


def make_inputs(
    tensors: Sequence[dict[str, Any]], value_range: tuple[float, float], sets: int, seed: int
) -> list[list[np.ndarray]]:
    """`sets` seeded inputs for a model whose inputs are described by `tensors` (name, shape, dtype).

    Floating point inputs are smooth images in `value_range` (low, high), as photographs are: noise would be averaged
    away, or drive a classifier to probabilities of 0 and 1, where wrong arithmetic no longer shows. Integer inputs
    are uniform over their type's range. Raises ModelError for inputs of which there can be no such values, or that
    would take more than a gibibyte in all.
    """
    _require_possible(tensors, sets)
    return [
        [
            _one_input(tensor, value_range, seed * 1_000_003 + number * 1_009 + position)
            for position, tensor in enumerate(tensors)
        ]
        for number in range(sets)
    ]


def _require_possible(tensors: Sequence[dict[str, Any]], sets: int) -> None:
    size = 0
    for tensor in tensors:
        if tensor["dtype"] not in _DTYPES:
            raise _impossible(tensor, "no values of this type can be made; convert the model with numeric inputs")
        if any(extent < 1 for extent in tensor["shape"]):
            raise _impossible(tensor, "every dimension should be at least 1")
        size += sets * math.prod(tensor["shape"]) * np.dtype(tensor["dtype"]).itemsize
        if size > _MOST_BYTES:
            wanted = f"{sets} sets of inputs take at least {size / (1 << 30):.4g} GiB, and 1 GiB is the most"
            raise _impossible(tensor, f"{wanted}; check.inputs in the spec says how many sets")


def _impossible(tensor: dict[str, Any], why: str) -> ModelError:
    return ModelError(f"input {tensor['name']} {list(tensor['shape'])} {tensor['dtype']}: {why}")


def _one_input(tensor: dict[str, Any], value_range: tuple[float, float], seed: int) -> np.ndarray:
    shape, dtype = tuple(tensor["shape"]), np.dtype(tensor["dtype"])
    generator = np.random.default_rng(seed)
    if dtype == np.bool_:
        return generator.integers(0, 2, shape).astype(dtype)
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    # Values in [-1, 1]; only shapes that begin with a batch of one are images.
    image = len(shape) >= 2 and shape[0] == 1
    unit = smooth_input(shape, seed) if image else generator.uniform(-1.0, 1.0, shape)
    low, high = value_range
    return np.asarray(low + (unit + 1.0) / 2.0 * (high - low)).astype(dtype)


def save_sets(path: Path, sets: Sequence[Sequence[np.ndarray]]) -> None:
    """Write lists of arrays; `load_sets` reads them back in order."""
    arrays = {f"{number}_{position}": a for number, arrays in enumerate(sets) for position, a in enumerate(arrays)}
    np.savez(path, **arrays)  # type: ignore[arg-type]  # the stubs take every keyword for allow_pickle


def load_sets(path: Path) -> list[list[np.ndarray]]:
    """Read what `save_sets` wrote."""
    sets: list[list[np.ndarray]] = []
    with np.load(path) as stored:
        for key in sorted(stored.files, key=lambda key: tuple(map(int, key.split("_")))):
            number = int(key.split("_")[0])
            while len(sets) <= number:
                sets.append([])
            sets[number].append(stored[key])
    return sets
