from __future__ import annotations

import numpy as np

from layoutlab.measure.inputs import load_sets, make_inputs, save_sets

IMAGE = {"name": "image", "shape": [1, 16, 12, 3], "dtype": "float32"}


def test_inputs_fill_the_range_and_differ_from_set_to_set():
    sets = make_inputs([IMAGE], (-1.0, 1.0), sets=4, seed=1)
    values = np.stack([arrays[0] for arrays in sets])
    assert values.shape == (4, 1, 16, 12, 3)
    assert values.dtype == np.float32
    assert -1.0 <= values.min() < -0.6
    assert 0.6 < values.max() <= 1.0
    assert len({array.tobytes() for array in values}) == 4
    assert (values != 0).all()


def test_the_same_seed_gives_the_same_inputs_and_another_others():
    first, again, other = (make_inputs([IMAGE], (0.0, 255.0), 1, seed)[0][0] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert 0.0 <= first.min() <= first.max() <= 255.0


def test_every_kind_of_input_tensor_gets_values_of_its_type():
    tensors = [
        IMAGE,
        {"name": "vector", "shape": [1, 64], "dtype": "float32"},
        {"name": "scalar", "shape": [], "dtype": "float32"},
        {"name": "bytes", "shape": [1, 4, 4, 1], "dtype": "uint8"},
        {"name": "index", "shape": [2], "dtype": "int64"},
        {"name": "mask", "shape": [3], "dtype": "bool"},
    ]
    arrays = make_inputs(tensors, (-1.0, 1.0), 1, seed=3)[0]
    assert [(list(a.shape), str(a.dtype)) for a in arrays] == [(t["shape"], t["dtype"]) for t in tensors]


def test_sets_come_back_from_disk_in_order(tmp_path):
    sets = [[np.array([number, position]) for position in range(11)] for number in range(12)]
    save_sets(tmp_path / "x.npz", sets)
    loaded = load_sets(tmp_path / "x.npz")
    assert [[array.tolist() for array in arrays] for arrays in loaded] == [
        [[number, position] for position in range(11)] for number in range(12)
    ]
