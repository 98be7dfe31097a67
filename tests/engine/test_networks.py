"""The real networks, in every layout: TFLite's outputs, and no more transforms than their structure needs.

Slow: they are built with TensorFlow (the extra `models`) unless they are in experiments/models/built already.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.layout.convert import apply_plan
from layoutlab.engine.relax.layout.plan import plan
from layoutlab.model.build import file_name

from ..conftest import ROOT
from .running import LAYOUTS, Built, run_tflite, seeded_inputs

BUILT = ROOT / "experiments" / "models" / "built"
# Most transforms in NCHW and NCHWc, free ones counted; squeeze-and-excite and parallel branches are given more room.
NETWORKS = {
    "mobilenet_v1": 2,
    "mobilenet_v2": 2,
    "mobilenet_v3_small": 4,
    "mobilenet_v3_large": 4,
    "resnet50": 2,
    "inception_v3": 4,
}


def network(name: str):
    path = BUILT / file_name(name)
    if not path.exists():
        pytest.importorskip("tensorflow")
        subprocess.run([sys.executable, "-m", "layoutlab.model.build", name, "-o", str(BUILT)], check=True)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_a_real_network_in_every_layout(name, tmp_path):
    path = network(name)
    imported = canonicalise(import_model(path.read_bytes()))
    inputs = [seeded_inputs(path, seed) for seed in range(3)]
    wanted = [run_tflite(path, values)[0] for values in inputs]
    # The check could not fail if every input gave the same output.
    assert max(np.abs(output - wanted[0]).max() for output in wanted) > 0.05
    for layout, asked in LAYOUTS.items():
        converted, transforms = apply_plan(imported, plan(imported, *asked))
        assert len(transforms) <= (0 if layout == "nhwc" else NETWORKS[name]), transforms
        (tmp_path / layout).mkdir()
        built = Built(converted, tmp_path / layout)
        for values, output in zip(inputs, wanted, strict=True):
            np.testing.assert_allclose(
                built.run(values)[0], output, rtol=1e-3, atol=1e-4, equal_nan=False, err_msg=layout
            )
