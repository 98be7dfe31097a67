"""What a profile of the whole network says about some of its operators."""

from __future__ import annotations

import json

import pytest

from layoutlab.alone.run import network_us

PROFILE = {
    "device": "CPU",
    "operators": [
        {"index": 0, "node": 0},
        {"index": 1, "node": 0},
        {"index": 2, "node": 1},
        {"index": 3, "node": 2},
        {"index": 4, "node": None},
    ],
    "rows": [
        {"nodes": [0], "calls": 1, "time_ms": 0.5},
        {"nodes": [1, 2], "calls": 2, "time_ms": 0.2},  # two calls of one symbol
    ],
}


@pytest.mark.parametrize(
    ("ops", "expected_us"), [({0}, 500.0), ({0, 1}, 500.0), ({1, 2}, 600.0), ({2, 3}, 200.0), ({4}, None)]
)
def test_each_function_counts_once(tmp_path, ops, expected_us):
    (tmp_path / "profile.nhwc.json").write_text(json.dumps(PROFILE))
    found = network_us(tmp_path, "nhwc", "CPU", ops)
    assert found == (None if expected_us is None else pytest.approx(expected_us))


def test_a_profile_of_another_device_says_nothing(tmp_path):
    assert network_us(tmp_path, "nhwc", "CPU", {0}) is None
    (tmp_path / "profile.nhwc.json").write_text(json.dumps(PROFILE))
    assert network_us(tmp_path, "nhwc", "another CPU", {0}) is None
