"""Build .tflite files with seeded random weights: keras.applications' nets, and tiny ones for tests.

Run as `python -m layoutlab.model.build NAME [-o DIR]`; needs the optional extra `models` (TensorFlow).
The input is float32 NHWC in [-1, 1] with batch 1, as in the hosted TFLite models; the output is a
softmax over the classes. Some of the tiny nets differ, to test just that. How fast a net runs does not
depend on its weights, so random ones will do.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from layoutlab.errors import LayoutlabError, UsageError
from layoutlab.model import tiny
from layoutlab.model.weights import CALIBRATION_INPUTS, calibration_inputs, initialise
from layoutlab.records.replace import write_synced

DEFAULT_DIRECTORY = Path("experiments/models/built")


@dataclass(frozen=True)
class Architecture:
    """A net to build: the shape of one input without its batch, and a function from input to Keras model.

    `suffix` ends the file's name, such as "_224". With `dynamic_batch` the file leaves the batch open;
    with `int8` it computes in 8-bit integers, from the input to the output.
    """

    input_shape: tuple[int, ...]
    make: Callable[[Any], Any]
    suffix: str = ""
    dynamic_batch: bool = False
    int8: bool = False


def _application(function: str, size: int = 224, **options: Any) -> Architecture:
    """The architecture `keras.applications.<function>` for square RGB images of `size` pixels."""

    def make(inputs: Any) -> Any:
        import keras

        return getattr(keras.applications, function)(input_tensor=inputs, weights=None, **options)

    return Architecture((size, size, 3), make, f"_{size}")


def _mobilenet_v3(function: str, minimalistic: bool) -> Architecture:
    return _application(function, minimalistic=minimalistic, include_preprocessing=False)


def _tiny(
    input_shape: tuple[int, ...], layers: Callable[[Any], Any], dynamic_batch: bool = False, int8: bool = False
) -> Architecture:
    def make(inputs: Any) -> Any:
        import keras

        return keras.Model(inputs, layers(inputs))

    return Architecture(input_shape, make, dynamic_batch=dynamic_batch, int8=int8)


BUILDERS: dict[str, Architecture] = {
    "mobilenet_v1": _application("MobileNet"),
    "mobilenet_v2": _application("MobileNetV2"),
    "mobilenet_v3_small": _mobilenet_v3("MobileNetV3Small", minimalistic=False),
    "mobilenet_v3_large": _mobilenet_v3("MobileNetV3Large", minimalistic=False),
    "mobilenet_v3_small_minimalistic": _mobilenet_v3("MobileNetV3Small", minimalistic=True),
    "mobilenet_v3_large_minimalistic": _mobilenet_v3("MobileNetV3Large", minimalistic=True),
    "resnet50": _application("ResNet50"),
    "inception_v3": _application("InceptionV3", size=299),
    "tiny_conv": _tiny((16, 16, 8), tiny.conv),
    "tiny_mobilenet": _tiny((32, 32, 3), tiny.mobilenet),
    "tiny_odd": _tiny((17, 23, 3), tiny.odd),
    "tiny_dense": _tiny((64,), tiny.dense),
    "tiny_se": _tiny((32, 32, 3), tiny.squeeze_excite),
    "tiny_resnet": _tiny((32, 32, 3), tiny.resnet),
    "tiny_inception": _tiny((27, 35, 3), tiny.inception),
    "tiny_groups": _tiny((20, 28, 1), tiny.groups),
    "tiny_resize": _tiny((16, 24, 3), tiny.resize),
    "tiny_dynamic": _tiny((16, 16, 8), tiny.conv, dynamic_batch=True),
    "tiny_int8": _tiny((32, 32, 3), tiny.mobilenet, int8=True),
}


def build(name: str, seed: int = 1) -> bytes:
    """The .tflite file of `BUILDERS[name]`, with weights drawn from `seed`.

    The same seed gives the same bytes with the same TensorFlow on the same kind of CPU. Elsewhere the
    nets with batch normalisation may differ in the last bits of their weights; the tiny ones should not.

    Raises UsageError for an unknown name, or if TensorFlow is not installed.
    """
    architecture = _architecture(name)
    tf, keras = _import_tensorflow()
    keras.utils.set_random_seed(seed)
    tf.config.experimental.enable_op_determinism()

    calibrated = _make(keras, architecture, CALIBRATION_INPUTS)
    initialise(calibrated, np.random.default_rng(seed))
    weights = calibrated.get_weights()

    model = _make(keras, architecture, None if architecture.dynamic_batch else 1)
    model.set_weights(weights)
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if architecture.int8:
        _quantise(tf, converter, architecture.input_shape)
    with contextlib.redirect_stdout(io.StringIO()):  # Keras prints a line for every weight
        return bytes(converter.convert())


def file_name(name: str) -> str:
    """The name of the file that holds the net `name`, such as "inception_v3_299.tflite"."""
    return f"{name}{_architecture(name).suffix}.tflite"


def _architecture(name: str) -> Architecture:
    if name not in BUILDERS:
        raise UsageError(f"no model named {name!r} to build; the names are: {', '.join(BUILDERS)}")
    return BUILDERS[name]


def _import_tensorflow() -> tuple[Any, Any]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # else every build prints a page of CPU features
    try:
        import keras
        import tensorflow as tf
    except ImportError as error:
        raise UsageError(
            f"building a model needs TensorFlow ({error}): install the extra with .venv/bin/pip install -e '.[models]'"
        ) from error
    return tf, keras


def _quantise(tf: Any, converter: Any, input_shape: tuple[int, ...]) -> None:
    """Let `converter` turn everything into int8, with the ranges that the calibration inputs give."""
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([image[None]] for image in calibration_inputs(input_shape))
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8


def _make(keras: Any, architecture: Architecture, batch: int | None) -> Any:
    keras.utils.clear_session()  # restarts Keras's counters, which name layers and so reach the file
    return architecture.make(keras.Input(batch_shape=(batch, *architecture.input_shape), name="input"))


def main(arguments: list[str] | None = None) -> int:
    """Build one model and print its path, size in bytes and sha256; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m layoutlab.model.build", description="Build a .tflite file.")
    parser.add_argument("name", metavar="NAME", help=", ".join(BUILDERS))
    parser.add_argument("-o", dest="directory", type=Path, default=DEFAULT_DIRECTORY, metavar="DIR")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    try:
        data = build(options.name, options.seed)
    except LayoutlabError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    options.directory.mkdir(parents=True, exist_ok=True)
    path = options.directory / file_name(options.name)
    # Whoever finds a file here takes it for the whole model.
    write_synced(path, data)
    print(f"{path}  {len(data)} bytes  sha256 {hashlib.sha256(data).hexdigest()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
