"""What this TVM is, and which of the behaviours that changed from release to release it has, found out by trying."""

import logging
import platform

import tvm
from tvm import relay

from .compat import lacks_kernel_layout
from .convs import find_convs, layout_label
from .layouts import stock
from .targets import make_target

# Channels and extents of a usual layer: some hooks look at them.
_EXTENT, _CHANNELS = 14, 32


def describe(target):
    """Versions, and for each kind of convolution what TVM's own hook does to it when nothing is tuned.

    `hook` is "keeps it", the layout it becomes, or the error; `schedule` the implementation that is chosen without
    records. `target` is in dict form.
    """
    made = make_target(target)
    return {
        **about(made),
        "completed": lacks_kernel_layout(),
        "none_keeps": _none_keeps(made),
        "convs": {name: _behaviour(made, *form) for name, form in _FORMS.items()},
    }


def about(target):
    """Versions, and the target as this TVM writes it."""
    return {
        "tvm": tvm.__version__,
        "package": _package(),
        "git": _build_info().get("GIT_COMMIT_HASH", "unknown"),
        "llvm": _llvm(),
        "python": platform.python_version(),
        "target": str(target),
    }


_FORMS = {
    "NHWC conv": ("NHWC", "HWIO", 1),
    "NHWC depthwise": ("NHWC", "HWOI", _CHANNELS),
    "NCHW conv": ("NCHW", "OIHW", 1),
    "NCHW depthwise": ("NCHW", "OIHW", _CHANNELS),
}


def _build_info():
    try:
        return {str(key): str(value) for key, value in tvm.support.libinfo().items()}
    except Exception:
        return {}


def _package():
    """Name and version of the package that this TVM came in; None for a build of one's own."""
    try:
        from importlib.metadata import distributions
    except ImportError:
        return None
    for found in distributions():
        if "tvm" in (found.read_text("top_level.txt") or "").split():
            return "%s %s" % (found.metadata["Name"], found.version)
    return None


def _llvm():
    try:
        version = tvm.target.codegen.llvm_version_major()
    except Exception:
        return "unknown"
    return _build_info().get("LLVM_VERSION", str(version))


def _module(data_layout, kernel_layout, groups):
    shape = {"N": 1, "H": _EXTENT, "W": _EXTENT, "C": _CHANNELS}
    weights = {"H": 3, "W": 3, "I": 1 if groups > 1 else _CHANNELS, "O": _CHANNELS}
    data = relay.var("data", shape=[shape[axis] for axis in data_layout], dtype="float32")
    kernel = relay.var("kernel", shape=[weights[axis] for axis in kernel_layout], dtype="float32")
    conv = relay.nn.conv2d(
        data,
        kernel,
        padding=(1, 1, 1, 1),
        groups=groups,
        channels=_CHANNELS,
        kernel_size=(3, 3),
        data_layout=data_layout,
        kernel_layout=kernel_layout,
    )
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([data, kernel], conv)))


def _alter(mod, target):
    with target, tvm.transform.PassContext(opt_level=3):
        return relay.transform.InferType()(relay.transform.AlterOpLayout()(mod))


def _behaviour(target, data_layout, kernel_layout, groups):
    mod = _module(data_layout, kernel_layout, groups)
    return {
        "hook": _after_hook(mod, target),
        "schedule": _schedule(mod, target),
    }


def _after_hook(mod, target):
    logging.disable(logging.WARNING)
    try:
        with stock():
            convs = find_convs(_alter(mod, target))
    except Exception as error:
        return "fails: %s" % _first_message(error)
    finally:
        logging.disable(logging.NOTSET)
    if not convs:
        return "no convolution"
    return _difference(find_convs(mod)[0], convs[0])


def _difference(before, after):
    """`keeps it`, or the layout with that of the weights where these changed."""
    kernels = [str(call.attrs.kernel_layout) for call in (before, after)]
    if layout_label(before) == layout_label(after) and kernels[0] == kernels[1]:
        return "keeps it"
    return "%s with weights in %s" % (layout_label(after), kernels[1])


def _first_message(error):
    lines = [line.strip() for line in str(error).splitlines() if "Error: " in line]
    return lines[-1] if lines else "%s: %s" % (type(error).__name__, str(error).strip().split("\n")[-1])


def _none_keeps(target):
    """Whether None from the hook leaves a convolution as it was."""
    from .layouts import kept

    with kept():
        convs = find_convs(_alter(_module("NHWC", "HWIO", 1), target))
    return [layout_label(conv) for conv in convs] == ["NHWC"]


def _schedule(mod, target):
    try:
        from tvm.relay.backend import te_compiler as chooser
    except ImportError:
        from tvm.relay.backend import compile_engine as chooser
    call = find_convs(mod)[0]
    types = [tvm.te.placeholder(arg.checked_type.shape, arg.checked_type.dtype) for arg in call.args]
    try:
        with target:
            chosen, _ = chooser.select_implementation(call.op, call.attrs, types, call.checked_type, target)
        return str(chosen.name)
    except Exception as error:
        return "none: %s" % type(error).__name__
