"""Networks small enough to compile and tune within a test, as Keras models.

None has batch normalisation: the TFLite converter would fold it into the biases, and without it the
weights do not depend on the CPU that builds the file. Every function takes the Keras input tensor
and returns the output tensor.
"""

from __future__ import annotations

from typing import Any

CLASSES = 16
ODD_CLASSES = 10


def conv(x: Any) -> Any:
    """Smallest convolutional net; channels divide by 8, so that every layout applies. For quick runs."""
    from keras import layers

    x = layers.Conv2D(16, 3, padding="same", activation="relu", name="conv3x3")(x)
    x = layers.Conv2D(32, 1, activation="relu", name="conv1x1")(x)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return layers.Dense(CLASSES, activation="softmax", name="classifier")(x)


def mobilenet(x: Any) -> Any:
    """MobileNetV3-minimalistic's structure in miniature. For tests of every operator that net has."""
    from keras import layers

    x = layers.Conv2D(16, 3, strides=2, padding="same", name="stem")(x)
    x = layers.ReLU(6.0, name="stem_relu")(x)
    x = _inverted_residual(x, expand=32, out=16, stride=1, name="block0")
    x = _inverted_residual(x, expand=48, out=24, stride=2, name="block1")
    x = _inverted_residual(x, expand=48, out=24, stride=1, name="block2")
    x = layers.Conv2D(64, 1, name="head")(x)
    x = layers.ReLU(6.0, name="head_relu")(x)
    x = layers.GlobalAveragePooling2D(keepdims=True, name="pool")(x)
    x = layers.Conv2D(CLASSES, 1, name="classifier")(x)
    return layers.Softmax(name="softmax")(layers.Flatten(name="flatten")(x))


def odd(x: Any) -> Any:
    """Channels that 4 and 8 do not divide, dilation, VALID and SAME. For what packed layouts trip over."""
    from keras import layers

    x = layers.Conv2D(6, 3, padding="valid", activation="relu", name="valid")(x)
    x = layers.Conv2D(10, 3, padding="same", dilation_rate=2, activation="relu", name="dilated")(x)
    x = layers.DepthwiseConv2D(3, strides=2, padding="same", activation="relu", name="depthwise")(x)
    x = layers.MaxPooling2D(2, padding="same", name="max_pool")(x)
    x = layers.Conv2D(6, 1, activation="relu", name="pointwise")(x)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return layers.Dense(ODD_CLASSES, activation="softmax", name="classifier")(x)


def dense(x: Any) -> Any:
    """No convolution at all. For the case where there is no layout to compare."""
    from keras import layers

    x = layers.Dense(128, activation="relu", name="hidden0")(x)
    x = layers.Dense(128, activation="relu", name="hidden1")(x)
    return layers.Dense(CLASSES, activation="softmax", name="classifier")(x)


def _inverted_residual(x: Any, expand: int, out: int, stride: int, name: str) -> Any:
    """Widen with a 1x1, filter with a depthwise 3x3, narrow with a 1x1, and add the input if it fits."""
    from keras import layers

    y = layers.Conv2D(expand, 1, name=f"{name}_expand")(x)
    y = layers.ReLU(6.0, name=f"{name}_expand_relu")(y)
    if stride == 2:  # Keras's MobileNets pad by hand here; the converter turns it back into SAME
        y = layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"{name}_pad")(y)
    padding = "same" if stride == 1 else "valid"
    y = layers.DepthwiseConv2D(3, strides=stride, padding=padding, name=f"{name}_depthwise")(y)
    y = layers.ReLU(6.0, name=f"{name}_depthwise_relu")(y)
    y = layers.Conv2D(out, 1, name=f"{name}_project")(y)
    if stride == 1 and x.shape[-1] == out:
        y = layers.Add(name=f"{name}_add")([x, y])
    return y
