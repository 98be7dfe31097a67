"""Seeded weights and inputs that give a network with no training outputs worth comparing.

With Keras's own initial weights every class comes out near 1/classes, whatever the input is, and a
comparison of two such outputs passes even when a layer is wrong. Here the activations keep their
scale through the network, and the classifier is set so that its logits differ from class to class
and from input to input.
"""

from __future__ import annotations

from typing import Any

import numpy as np

CALIBRATION_INPUTS = 16
CALIBRATION_SEED = 10_000
WAVES = 8
MAX_CYCLES = 4.0
MAP_SPREAD = 2.0


def smooth_input(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """One float32 input of `shape` (1, *spatial, channels) in [-1, 1]: a sum of slow cosine waves.

    Smooth like a photograph, not like white noise, which convolutions and pooling average away.
    A shape with no spatial axes, (1, features), gets independent values.
    """
    rng = np.random.default_rng(seed)
    *spatial, channels = shape[1:]
    axes = np.meshgrid(*(np.linspace(0.0, 1.0, size) for size in spatial), indexing="ij")
    total = np.zeros((*spatial, channels))
    for _ in range(WAVES):
        cycles = rng.uniform(-MAX_CYCLES, MAX_CYCLES, len(spatial))
        wave = sum((c * axis for c, axis in zip(cycles, axes, strict=True)), np.zeros(spatial))
        total += rng.normal(size=channels) * np.cos(2 * np.pi * (wave[..., None] + rng.random(channels)))
    return (total / np.abs(total).max())[None].astype(np.float32)


def initialise(model: Any, rng: np.random.Generator) -> None:
    """Set every weight of the Keras `model`, whose batch must be CALIBRATION_INPUTS.

    Every output must come from a layer with a kernel, 1x1 if it is a convolution, followed by nothing
    but a softmax or a sigmoid and reshapes: that layer gives the logits.
    """
    for layer in model.layers:
        if hasattr(layer, "gamma"):
            _draw_norm(layer, rng)
        elif hasattr(layer, "kernel"):
            _draw_kernel(layer, rng)
        elif type(layer).__name__ == "PReLU":
            layer.alpha.assign(rng.uniform(0.1, 0.4, layer.alpha.shape))
    images = calibration_inputs(model.input_shape[1:])
    # In training mode a normalisation with momentum 0 keeps the statistics of just this batch.
    model(images, training=True)
    for output in model.outputs:
        _spread_logits(model, _classifier(output), images)


def calibration_inputs(shape: tuple[int, ...]) -> np.ndarray:
    """CALIBRATION_INPUTS smooth inputs of `shape` (*spatial, channels), with seeds far from those of comparisons."""
    return np.concatenate([smooth_input((1, *shape), CALIBRATION_SEED + i) for i in range(CALIBRATION_INPUTS)])


def _draw_norm(layer: Any, rng: np.random.Generator) -> None:
    size = layer.moving_mean.shape
    if layer.gamma is not None:
        layer.gamma.assign(rng.uniform(0.8, 1.2, size))
    layer.beta.assign(rng.normal(0.0, 0.2, size))
    layer.momentum = 0.0


def _draw_kernel(layer: Any, rng: np.random.Generator) -> None:
    """Normal weights of variance 2 / fan-in, which keeps the scale of activations through a ReLU."""
    shape = layer.kernel.shape
    depthwise = "Depthwise" in type(layer).__name__
    fan_in = np.prod(shape[:2] if depthwise else shape[:-1])
    layer.kernel.assign(rng.normal(0.0, np.sqrt(2.0 / fan_in), shape))
    if layer.bias is not None:
        layer.bias.assign(rng.normal(0.0, 0.1, layer.bias.shape))


def _classifier(output: Any) -> Any:
    """The last layer with a kernel before the Keras tensor `output`."""
    layer = output._keras_history.operation
    while not hasattr(layer, "kernel"):
        layer = layer.input._keras_history.operation
    return layer


def _spread_logits(model: Any, classifier: Any, images: np.ndarray) -> None:
    """Centre the logits of each class over the calibration inputs and scale them to one spread.

    The spread is sqrt(2 ln K) for K classes, where the largest of K standard normals lies: around it
    the largest logit takes a fair share of the softmax, below it next to nothing, far above it all.
    One class alone is the logit of a sigmoid: with spread MAP_SPREAD it takes most values between 0 and 1.
    """
    import keras

    features = keras.Model(model.input, classifier.input)(images, training=False)
    kernel = np.asarray(classifier.kernel, np.float64)
    inputs, classes = kernel.shape[-2:]
    logits = np.asarray(features, np.float64).reshape(-1, inputs) @ kernel.reshape(inputs, classes)
    # Medians, because in nets with squeeze-and-excite gates a few inputs give far larger features.
    centre = np.median(logits, axis=0)
    spread = np.median((logits - centre).std(axis=1)) if classes > 1 else logits.std()
    wanted = np.sqrt(2 * np.log(classes)) if classes > 1 else MAP_SPREAD
    # Rounded, because the last bits of the features depend on the CPU and the file should not.
    scale = float(f"{wanted / spread:.2g}")
    classifier.kernel.assign(kernel * scale)
    classifier.bias.assign(np.round(-centre * scale, 1))
