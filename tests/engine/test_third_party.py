"""Models of other people: float16 and sparse weights, PReLU, padded channels, pooled shortcuts, several outputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.layout.convert import apply_plan
from layoutlab.engine.relax.layout.plan import plan
from layoutlab.errors import StageError

from .running import LAYOUTS, Built, run_tflite, seeded_inputs

# What `layoutlab import` says of each model that can be imported, after its name.
IMPORTED = {
    "face_detection_back": (
        "fine, 282 operators (138 DEQUANTIZE, 37 CONV_2D, 33 RELU, 32 DEPTHWISE_CONV_2D, 31 ADD, 4 RESHAPE, "
        "3 MAX_POOL_2D, 2 CONCATENATION, 2 PAD); input input [1, 256, 256, 3] float32; "
        "outputs regressors [1, 896, 16] float32, classificators [1, 896, 1] float32"
    ),
    "face_detection_front": (
        "fine, 164 operators (74 DEQUANTIZE, 21 CONV_2D, 17 RELU, 16 ADD, 16 DEPTHWISE_CONV_2D, 11 PAD, 4 RESHAPE, "
        "3 MAX_POOL_2D, 2 CONCATENATION); input input [1, 128, 128, 3] float32; "
        "outputs regressors [1, 896, 16] float32, classificators [1, 896, 1] float32"
    ),
    "face_detection_full_range": (
        "fine, 354 operators (178 DEQUANTIZE, 49 CONV_2D, 47 RELU, 40 DEPTHWISE_CONV_2D, 23 ADD, 8 PAD, "
        "4 MAX_POOL_2D, 3 RESIZE_BILINEAR, 2 RESHAPE); input input [1, 192, 192, 3] float32; "
        "outputs reshaped_regressor_face_4 [1, 2304, 16] float32, reshaped_classifier_face_4 [1, 2304, 1] float32"
    ),
    "face_landmark": (
        "fine, 97 operators (25 CONV_2D, 23 PRELU, 20 ADD, 20 DEPTHWISE_CONV_2D, 6 MAX_POOL_2D, 3 PAD); "
        "input input_1 [1, 192, 192, 3] float32; "
        "outputs conv2d_20 [1, 1, 1, 1404] float32, conv2d_30 [1, 1, 1, 1] float32"
    ),
    "iris_landmark": (
        "fine, 169 operators (55 CONV_2D, 53 PRELU, 26 ADD, 26 DEPTHWISE_CONV_2D, 6 MAX_POOL_2D, 2 RESHAPE, 1 PAD); "
        "input input_1 [1, 64, 64, 3] float32; "
        "outputs output_eyes_contours_and_brows [1, 213] float32, output_iris [1, 15] float32"
    ),
}
IMPORTED["face_detection_short_range"] = IMPORTED["face_detection_front"]

SPARSE = "face_detection_full_range_sparse"
SPARSE_REASON = (
    "the weights are stored sparse, in a form TVM's importer does not read; convert the model without sparsity, "
    "or make its weights dense before converting"
)
SPARSE_OPS = """\
  op 9 DEQUANTIZE, output model_1/model/conv2d_1/Conv2D_dequantize2 [8, 1, 1, 32]
  op 17 DEQUANTIZE, output model_1/model/conv2d_2/Conv2D_dequantize2 [32, 1, 1, 8]
  op 27 DEQUANTIZE, output model_1/model/conv2d_3/Conv2D_dequantize2 [8, 1, 1, 32]
  op 35 DEQUANTIZE, output model_1/model/conv2d_4/Conv2D_dequantize2 [32, 1, 1, 8]
  op 43 DEQUANTIZE, output model_1/model/conv2d_5/Conv2D_dequantize2 [16, 1, 1, 32]
  op 51 DEQUANTIZE, output model_1/model/conv2d_6/Conv2D_dequantize2 [64, 1, 1, 16]
  op 59 DEQUANTIZE, output model_1/model/conv2d_7/Conv2D_dequantize2 [16, 1, 1, 64]
  op 67 DEQUANTIZE, output model_1/model/conv2d_8/Conv2D_dequantize2 [64, 1, 1, 16]
  op 76 DEQUANTIZE, output model_1/model/conv2d_9/Conv2D_dequantize2 [16, 1, 1, 64]
  op 85 DEQUANTIZE, output model_1/model/conv2d_10/Conv2D_dequantize2 [64, 1, 1, 16]
  op 89 DEQUANTIZE, output model_1/model/conv2d_44/Conv2D_dequantize2 [48, 1, 1, 64]
  op 98 DEQUANTIZE, output model_1/model/conv2d_11/Conv2D_dequantize2 [32, 1, 1, 64]
  op 106 DEQUANTIZE, output model_1/model/conv2d_12/Conv2D_dequantize2 [128, 1, 1, 32]
  op 113 DEQUANTIZE, output model_1/model/conv2d_13/Conv2D_dequantize2 [32, 1, 1, 128]
  op 121 DEQUANTIZE, output model_1/model/conv2d_14/Conv2D_dequantize2 [128, 1, 1, 32]
  op 131 DEQUANTIZE, output model_1/model/conv2d_15/Conv2D_dequantize2 [32, 1, 1, 128]
  op 139 DEQUANTIZE, output model_1/model/conv2d_16/Conv2D_dequantize2 [128, 1, 1, 32]
  op 144 DEQUANTIZE, output model_1/model/conv2d_38/Conv2D_dequantize2 [64, 1, 1, 128]
  op 151 DEQUANTIZE, output model_1/model/conv2d_17/Conv2D_dequantize2 [48, 1, 1, 128]
  op 159 DEQUANTIZE, output model_1/model/conv2d_18/Conv2D_dequantize2 [192, 1, 1, 48]
  op 168 DEQUANTIZE, output model_1/model/conv2d_19/Conv2D_dequantize2 [48, 1, 1, 192]
  op 175 DEQUANTIZE, output model_1/model/conv2d_20/Conv2D_dequantize2 [192, 1, 1, 48]
  op 184 DEQUANTIZE, output model_1/model/conv2d_21/Conv2D_dequantize2 [48, 1, 1, 192]
  op 193 DEQUANTIZE, output model_1/model/conv2d_22/Conv2D_dequantize2 [192, 1, 1, 48]
  op 198 DEQUANTIZE, output model_1/model/conv2d_32/Conv2D_dequantize2 [96, 1, 1, 192]
  op 206 DEQUANTIZE, output model_1/model/conv2d_23/Conv2D_dequantize2 [96, 1, 1, 192]
  op 214 DEQUANTIZE, output model_1/model/conv2d_24/Conv2D_dequantize2 [384, 1, 1, 96]
  op 221 DEQUANTIZE, output model_1/model/conv2d_25/Conv2D_dequantize2 [96, 1, 1, 384]
  op 229 DEQUANTIZE, output model_1/model/conv2d_26/Conv2D_dequantize2 [384, 1, 1, 96]
  op 238 DEQUANTIZE, output model_1/model/conv2d_27/Conv2D_dequantize2 [96, 1, 1, 384]
  op 247 DEQUANTIZE, output model_1/model/conv2d_28/Conv2D_dequantize2 [384, 1, 1, 96]
  op 255 DEQUANTIZE, output model_1/model/conv2d_29/Conv2D_dequantize2 [96, 1, 1, 384]
  op 263 DEQUANTIZE, output model_1/model/conv2d_30/Conv2D_dequantize2 [384, 1, 1, 96]
  op 269 DEQUANTIZE, output model_1/model/conv2d_31/Conv2D_dequantize2 [96, 1, 1, 384]
  op 279 DEQUANTIZE, output model_1/model/conv2d_33/Conv2D_dequantize2 [48, 1, 1, 96]
  op 286 DEQUANTIZE, output model_1/model/conv2d_34/Conv2D_dequantize2 [96, 1, 1, 48]
  op 295 DEQUANTIZE, output model_1/model/conv2d_35/Conv2D_dequantize2 [48, 1, 1, 96]
  op 303 DEQUANTIZE, output model_1/model/conv2d_36/Conv2D_dequantize2 [96, 1, 1, 48]
  op 309 DEQUANTIZE, output model_1/model/conv2d_37/Conv2D_dequantize2 [64, 1, 1, 96]
  op 318 DEQUANTIZE, output model_1/model/conv2d_39/Conv2D_dequantize2 [32, 1, 1, 64]
  op 327 DEQUANTIZE, output model_1/model/conv2d_40/Conv2D_dequantize2 [64, 1, 1, 32]
  op 335 DEQUANTIZE, output model_1/model/conv2d_41/Conv2D_dequantize2 [32, 1, 1, 64]
  op 343 DEQUANTIZE, output model_1/model/conv2d_42/Conv2D_dequantize2 [64, 1, 1, 32]
  op 349 DEQUANTIZE, output model_1/model/conv2d_43/Conv2D_dequantize2 [48, 1, 1, 64]
  op 359 DEQUANTIZE, output model_1/model/conv2d_45/Conv2D_dequantize2 [24, 1, 1, 48]
  op 367 DEQUANTIZE, output model_1/model/conv2d_46/Conv2D_dequantize2 [48, 1, 1, 24]
"""


def layoutlab_import(model: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "layoutlab", "import", model], cwd=folder, capture_output=True, text=True, timeout=120
    )


def test_the_models_are_these_seven(face_models):
    assert {path.stem for path in face_models.iterdir()} == {*IMPORTED, SPARSE}


@pytest.mark.parametrize("name", IMPORTED)
def test_a_model_that_can_be_imported(name, face_models):
    done = layoutlab_import(f"{name}.tflite", face_models)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{name}.tflite: {IMPORTED[name]}\n"


def test_sparse_weights_are_named_one_by_one(face_models):
    done = layoutlab_import(f"{SPARSE}.tflite", face_models)
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout == f"{SPARSE}.tflite: it cannot be imported: 46 problems\n\n{SPARSE_REASON}:\n{SPARSE_OPS}"


def test_importing_sparse_weights_names_the_first_five(face_models):
    with pytest.raises(StageError) as caught:
        import_model((face_models / f"{SPARSE}.tflite").read_bytes())
    places = ", ".join(line.strip() for line in SPARSE_OPS.splitlines()[:5])
    assert caught.value.stage == "import"
    assert caught.value.cause == (
        f"TVM cannot import this model: {places}: {SPARSE_REASON}; and 41 more (all of them: layoutlab import MODEL)"
    )


def test_short_range_is_front_under_another_name(face_models):
    """Its outputs therefore need no test of their own."""
    front, short = (face_models / f"face_detection_{name}.tflite" for name in ("front", "short_range"))
    assert front.read_bytes() == short.read_bytes()


# It takes a minute, and has no operator that the others have not.
LIKE_OTHERS = "iris_landmark"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == LIKE_OTHERS else ())
        for name in IMPORTED
        if name != "face_detection_short_range"
    ],
)
def test_outputs_are_tflites_in_every_layout(name, face_models, tmp_path):
    path = face_models / f"{name}.tflite"
    imported = canonicalise(import_model(path.read_bytes()))
    inputs = [seeded_inputs(path, seed) for seed in range(2)]
    wanted = [run_tflite(path, values) for values in inputs]
    for layout, asked in LAYOUTS.items():
        mod, transforms = apply_plan(imported, plan(imported, *asked))
        if layout == "nhwc":
            assert (mod, transforms) == (imported, [])
        (tmp_path / layout).mkdir()
        built = Built(mod, tmp_path / layout)
        for values, expected in zip(inputs, wanted, strict=True):
            outputs = built.run(values)
            assert len(outputs) == len(expected) == 2
            for output, reference in zip(outputs, expected, strict=True):
                np.testing.assert_allclose(output, reference, rtol=1e-3, atol=1e-4, equal_nan=False, err_msg=layout)
