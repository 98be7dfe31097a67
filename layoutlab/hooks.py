"""Layout hooks: functions from a convolution to the layout it should run in.

A hook is `hook(conv: Conv) -> ConvLayout | None`. None keeps the convolution as it is. Hooks see plain data and
import nothing of TVM, so the same hook can drive any engine and be tested in microseconds.

Layout strings are written as TVM writes them: capital letters name the logical axes in order, and a number with
a small letter names a block of that axis (`NCHW8c`: channels split into blocks of eight, the block innermost).
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass

from layoutlab.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Conv:
    """One 2-D convolution as a hook sees it, after `convert_layout` has been applied.

    Shapes belong to the layouts beside them; `padding` is (top, left, bottom, right); `index` counts the
    convolutions of the model in execution order, from 0.
    """

    index: int
    op: str
    data_layout: str
    kernel_layout: str
    out_layout: str
    data_shape: tuple[int, ...]
    kernel_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int
    dtype: str

    @property
    def in_channels(self) -> int:
        """Channels of the input, of all groups together."""
        return self.data_shape[self.data_layout.index("C")]

    @property
    def out_channels(self) -> int:
        """Channels of the output, of all groups together."""
        return self.out_shape[self.out_layout.index("C")]

    @property
    def kernel_size(self) -> tuple[int, int]:
        """Height and width of the kernel."""
        return self.kernel_shape[self.kernel_layout.index("H")], self.kernel_shape[self.kernel_layout.index("W")]

    @property
    def is_depthwise(self) -> bool:
        """Whether every group holds one input channel (the channel multiplier may be more than one)."""
        return self.groups > 1 and self.groups == self.in_channels

    @property
    def layout(self) -> ConvLayout:
        """The layout the convolution has now."""
        return ConvLayout(data=self.data_layout, kernel=self.kernel_layout, out=self.out_layout)


@dataclass(frozen=True, kw_only=True)
class ConvLayout:
    """Layouts of a convolution's input, kernel and output, for example `NCHW8c`, `OIHW8o`, `NCHW8c`."""

    data: str
    kernel: str
    out: str

    def __str__(self) -> str:
        return self.data if self.data == self.out else f"{self.data}->{self.out}"


Hook = Callable[[Conv], ConvLayout | None]


def keep(conv: Conv) -> ConvLayout | None:
    """Leave every convolution as it is: the no-op hook, TVM's `alter_op_layout` returning None."""
    return None


def nhwc(conv: Conv) -> ConvLayout | None:
    """Channels last."""
    return ConvLayout(data="NHWC", kernel="HWOI" if conv.is_depthwise else "HWIO", out="NHWC")


def nchw(conv: Conv) -> ConvLayout | None:
    """Channels first."""
    return ConvLayout(data="NCHW", kernel="OIHW", out="NCHW")


def nchwc(block: int) -> Hook:
    """Channels in blocks of `block`, the block innermost.

    An input with fewer channels than a block (an image) becomes one block of its own size, so that the first
    convolution already writes packed output. A convolution whose channels do not divide is kept as it is, and so
    is a grouped one that is not depthwise with multiplier 1: there is no packed kernel for it.
    """

    def hook(conv: Conv) -> ConvLayout | None:
        if conv.out_channels % block:
            return None
        if conv.groups > 1:
            if not conv.is_depthwise or conv.out_channels != conv.in_channels:
                return None
            in_block = block
        elif conv.in_channels < block:
            in_block = conv.in_channels
        elif conv.in_channels % block:
            return None
        else:
            in_block = block
        return ConvLayout(data=f"NCHW{in_block}c", kernel=f"OIHW{block}o", out=f"NCHW{block}c")

    return hook


BUILT_IN: dict[str, Hook] = {"keep": keep, "nhwc": nhwc, "nchw": nchw}


def resolve(name: str, block: int | None = None) -> Hook:
    """The hook a spec names: a built-in, or `package.module:function` imported from the user's code.

    Raises UsageError when there is no such hook. Importing a user's hook runs the user's code: only worker
    processes call this.
    """
    if name == "nchwc":
        return nchwc(block or 8)
    if name in BUILT_IN:
        return BUILT_IN[name]
    module_name, _, function_name = name.partition(":")
    if not function_name:
        known = ", ".join([*BUILT_IN, "nchwc"])
        raise UsageError(f'unknown hook "{name}": expected one of {known}, or package.module:function')
    try:
        hook = getattr(importlib.import_module(module_name), function_name)
    except ImportError as error:
        raise UsageError(f'hook "{name}": cannot import {module_name}: {error}') from error
    except AttributeError as error:
        raise UsageError(f'hook "{name}": module {module_name} has no function {function_name}') from error
    if not callable(hook):
        raise UsageError(f'hook "{name}": {function_name} is not a function')
    return hook


def source_sha256(hook: Hook) -> str:
    """Hash of the source file that defines the hook, so that a changed hook is a changed variant."""
    path = inspect.getsourcefile(hook)
    if path is None:
        raise UsageError(f"hook {hook!r} has no source file: define it in a module")
    with open(path, "rb") as source:
        return hashlib.sha256(source.read()).hexdigest()
