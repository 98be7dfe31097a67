"""Networks small enough to compile and tune within a test, as Keras models.

None has batch normalisation: the TFLite converter would fold it into the biases, and without it the
weights do not depend on the CPU that builds the file. Every function takes the Keras input tensor
and returns the output tensor, or a list of them.
"""

from __future__ import annotations

from typing import Any

CLASSES = 16
ODD_CLASSES = 10
SE_CHANNELS = 24
GATE_GAIN = 12.0


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


def squeeze_excite(x: Any) -> Any:
    """MobileNetV3 with hard-swish, squeeze-and-excite and 5x5 filters, in miniature."""
    from keras import layers

    x = layers.Conv2D(16, 3, strides=2, padding="same", name="stem")(x)
    x = layers.Activation("hard_swish", name="stem_swish")(x)
    x = _excited_residual(x, expand=40, squeeze=10, stride=2, name="block0")
    x = _excited_residual(x, expand=72, squeeze=6, stride=1, name="block1")
    x = layers.Conv2D(64, 1, name="conv")(x)
    x = layers.Activation("hard_swish", name="conv_swish")(x)
    x = layers.GlobalAveragePooling2D(keepdims=True, name="pool")(x)
    x = layers.Conv2D(80, 1, name="head")(x)
    x = layers.Activation("hard_swish", name="head_swish")(x)
    x = layers.Conv2D(CLASSES, 1, name="classifier")(x)
    return layers.Softmax(name="softmax")(layers.Flatten(name="flatten")(x))


def resnet(x: Any) -> Any:
    """ResNet's structure in miniature: padding that SAME cannot express, and both kinds of shortcut."""
    from keras import layers

    x = layers.ZeroPadding2D(3, name="stem_pad")(x)
    x = layers.Conv2D(16, 7, strides=2, activation="relu", name="stem")(x)
    x = layers.ZeroPadding2D(1, name="pool_pad")(x)
    x = layers.MaxPooling2D(3, strides=2, name="max_pool")(x)
    x = _bottleneck(x, inner=12, out=48, stride=2, name="block0")
    x = _bottleneck(x, inner=12, out=48, stride=1, name="block1")
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return layers.Dense(CLASSES, activation="softmax", name="classifier")(x)


def inception(x: Any) -> Any:
    """InceptionV3's structure in miniature: branches of unequal width, 1x7 and 7x1 filters, both poolings."""
    from keras import layers

    x = layers.Conv2D(16, 3, strides=2, activation="relu", name="stem")(x)
    one = layers.Conv2D(10, 1, activation="relu", name="one")(x)
    seven = layers.Conv2D(8, 1, activation="relu", name="seven_reduce")(x)
    seven = layers.Conv2D(12, (1, 7), padding="same", activation="relu", name="seven_1x7")(seven)
    seven = layers.Conv2D(16, (7, 1), padding="same", activation="relu", name="seven_7x1")(seven)
    three = layers.Conv2D(8, 1, activation="relu", name="three_reduce")(x)
    three = layers.Conv2D(24, 3, padding="same", activation="relu", name="three")(three)
    pooled = layers.AveragePooling2D(3, strides=1, padding="same", name="average_pool")(x)
    pooled = layers.Conv2D(8, 1, activation="relu", name="pooled")(pooled)
    x = layers.Concatenate(name="mixed0")([one, seven, three, pooled])
    strided = layers.Conv2D(20, 3, strides=2, activation="relu", name="strided")(x)
    x = layers.Concatenate(name="mixed1")([strided, layers.MaxPooling2D(3, strides=2, name="max_pool")(x)])
    x = layers.Conv2D(32, 1, activation="relu", name="conv1x1")(x)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return layers.Dense(CLASSES, activation="softmax", name="classifier")(x)


def groups(x: Any) -> Any:
    """Grouped convolution, depthwise with two filters a channel and with dilation. For one input channel."""
    from keras import layers

    x = layers.Conv2D(16, 3, strides=2, padding="same", activation="relu", name="stem")(x)
    x = layers.Conv2D(32, 3, padding="same", groups=4, activation="relu", name="grouped")(x)
    x = layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2, activation="relu", name="multiplied")(x)
    x = layers.Conv2D(24, 1, activation="relu", name="pointwise")(x)
    x = layers.DepthwiseConv2D(3, padding="same", dilation_rate=2, activation="relu", name="dilated")(x)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return layers.Dense(CLASSES, activation="softmax", name="classifier")(x)


def resize(x: Any) -> list[Any]:
    """A U-shaped net of two outputs: a map of the input's size, between 0 and 1, and the classes.

    Resizes with both interpolations, joins a skip connection, and has a PReLU after every convolution.
    """
    from keras import layers

    height, width = x.shape[1:3]
    skip = _conv_prelu(x, 16, stride=2, name="down0")
    x = _conv_prelu(skip, 24, stride=2, name="down1")
    classes = layers.GlobalAveragePooling2D(name="pool")(x)
    classes = layers.Dense(CLASSES, activation="softmax", name="classifier")(classes)
    x = layers.UpSampling2D(2, interpolation="bilinear", name="bilinear")(x)
    x = layers.Concatenate(name="join")([x, skip])
    x = _conv_prelu(x, 16, stride=1, name="up0")
    # Not UpSampling2D, which the converter turns into tiling and reshapes when it is to the nearest pixel.
    x = layers.Resizing(height, width, interpolation="nearest", name="nearest")(x)
    x = _conv_prelu(x, 8, stride=1, name="up1")
    return [layers.Conv2D(1, 1, activation="sigmoid", name="map")(x), classes]


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


def _excited_residual(x: Any, expand: int, squeeze: int, stride: int, name: str) -> Any:
    """MobileNetV3's block: like `_inverted_residual`, with a 5x5 filter and gates on the expanded channels."""
    from keras import layers

    y = layers.Conv2D(expand, 1, name=f"{name}_expand")(x)
    y = layers.Activation("hard_swish", name=f"{name}_expand_swish")(y)
    y = layers.DepthwiseConv2D(5, strides=stride, padding="same", name=f"{name}_depthwise")(y)
    y = layers.Activation("hard_swish", name=f"{name}_depthwise_swish")(y)
    gate = layers.GlobalAveragePooling2D(keepdims=True, name=f"{name}_squeeze")(y)
    gate = layers.Conv2D(squeeze, 1, activation="relu", name=f"{name}_reduce")(gate)
    gate = layers.Conv2D(expand, 1, name=f"{name}_excite")(gate)
    # The converter folds the gain into the convolution; without it no gate would come near 0 or 1.
    gate = layers.ReLU(6.0, name=f"{name}_gate")(gate * GATE_GAIN + 3.0) * (1.0 / 6.0)
    y = layers.Multiply(name=f"{name}_scale")([y, gate])
    y = layers.Conv2D(SE_CHANNELS, 1, name=f"{name}_project")(y)
    if stride == 1 and x.shape[-1] == SE_CHANNELS:
        y = layers.Add(name=f"{name}_add")([x, y])
    return y


def _bottleneck(x: Any, inner: int, out: int, stride: int, name: str) -> Any:
    """ResNet's block: 1x1, 3x3 and 1x1; the shortcut is a 1x1 convolution where the input does not fit."""
    from keras import layers

    y = layers.Conv2D(inner, 1, strides=stride, activation="relu", name=f"{name}_reduce")(x)
    y = layers.Conv2D(inner, 3, padding="same", activation="relu", name=f"{name}_conv")(y)
    y = layers.Conv2D(out, 1, name=f"{name}_expand")(y)
    if stride != 1 or x.shape[-1] != out:
        x = layers.Conv2D(out, 1, strides=stride, name=f"{name}_shortcut")(x)
    return layers.ReLU(name=f"{name}_relu")(layers.Add(name=f"{name}_add")([x, y]))


def _conv_prelu(x: Any, filters: int, stride: int, name: str) -> Any:
    from keras import layers

    x = layers.Conv2D(filters, 3, strides=stride, padding="same", name=name)(x)
    return layers.PReLU(shared_axes=[1, 2], name=f"{name}_prelu")(x)
