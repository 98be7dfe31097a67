"""What a particular TVM gets wrong in its own Python, completed while its own hook decides."""

import contextlib
import inspect

from tvm import relay

_TRANSFORM = "contrib_conv2d_gemm_weight_transform"


def lacks_kernel_layout():
    """Whether TVM's hook for NHWC convolutions on Arm calls a function without an argument that it needs.

    So it is in hhb-tvm: the function was given a layout of the kernel, and the hook was forgotten.
    """
    function = getattr(relay.nn, _TRANSFORM, None)
    if function is None:
        return False
    parameter = inspect.signature(function).parameters.get("kernel_layout")
    return parameter is not None and parameter.default is inspect.Parameter.empty


@contextlib.contextmanager
def completed():
    """While this context lasts, that function takes the layout it always had, HWIO, when it is told none."""
    if not lacks_kernel_layout():
        yield
        return
    usual = getattr(relay.nn, _TRANSFORM)

    def transform(weights, tile_N, tile_K, kernel_layout="HWIO"):
        return usual(weights, tile_N, tile_K, kernel_layout)

    setattr(relay.nn, _TRANSFORM, transform)
    try:
        yield
    finally:
        setattr(relay.nn, _TRANSFORM, usual)
