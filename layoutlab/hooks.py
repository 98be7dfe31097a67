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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
    constant_kernel: bool = True

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
    """Layouts of a convolution's input, kernel and output, for example `NCHW8c`, `OIHW8o`, `NCHW8c`.

    With `pad`, channels that do not fill their last block are filled up with zeros.
    """

    data: str
    kernel: str
    out: str
    pad: bool = False

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


@dataclass(frozen=True)
class Nchwc:
    """The hook for channels in blocks of `block`, the block innermost.

    An input with fewer channels than a block becomes one block of its own size, so that a first convolution on an
    image already writes packed output. Channels that do not divide keep their convolution as it is or, with `pad`,
    are filled up with zeros. `why_kept` says why a convolution was not packed.
    """

    block: int
    pad: bool = False

    def __call__(self, conv: Conv) -> ConvLayout | None:
        """The packed layout, or None."""
        if self.why_kept(conv):
            return None
        in_block = self.block if conv.groups > 1 else min(self.block, conv.in_channels)
        if conv.groups == 1 and self.pad and conv.in_channels > _IMAGE_CHANNELS:
            in_block = self.block
        return ConvLayout(
            data=f"NCHW{in_block}c",
            kernel=f"OIHW{self.block}o",
            out=f"NCHW{self.block}c",
            pad=bool(conv.in_channels % in_block or conv.out_channels % self.block),
        )

    def why_kept(self, conv: Conv) -> str:
        """The reason for keeping this convolution as it is; empty when it is packed."""
        if not conv.constant_kernel:
            return "its weights are not constant"
        if conv.out_channels == 1:
            return "it has one output channel"
        few = conv.groups == 1 and conv.in_channels < self.block
        divides = conv.out_channels % self.block == 0 and (few or conv.in_channels % self.block == 0)
        if divides:
            return ""
        if not self.pad:
            return f"{conv.in_channels} input and {conv.out_channels} output channels do not divide by {self.block}"
        if conv.groups > 1 and not (conv.is_depthwise and conv.out_channels == conv.in_channels):
            return "channels of a grouped convolution are not padded"
        return ""


# Inputs of so few channels are images: padding them to a block would only make the first convolution slower.
_IMAGE_CHANNELS = 4


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One row of a table of layouts: the conditions a convolution has to meet, and the layout it then gets.

    What is None matches everything. `kernel` is (height, width), `indices` are numbers of convolutions.
    """

    layout: str
    kernel: tuple[int, int] | None = None
    depthwise: bool | None = None
    stride: int | None = None
    indices: tuple[int, ...] | None = None
    min_in_channels: int = 0
    min_out_channels: int = 0

    def matches(self, conv: Conv) -> bool:
        """Whether the convolution meets every condition."""
        return (
            self.kernel in (None, conv.kernel_size)
            and self.depthwise in (None, conv.is_depthwise)
            and (self.stride is None or conv.strides == (self.stride, self.stride))
            and (self.indices is None or conv.index in self.indices)
            and conv.in_channels >= self.min_in_channels
            and conv.out_channels >= self.min_out_channels
        )


@dataclass(frozen=True)
class Table:
    """The hook for a table of rules: the first that matches decides; where none does, the convolution is kept."""

    rules: tuple[Rule, ...]

    def __call__(self, conv: Conv) -> ConvLayout | None:
        """The layout of the first rule that matches."""
        rule = self._first(conv)
        return for_layout(rule.layout)(conv) if rule else None

    def why_kept(self, conv: Conv) -> str:
        """Which rule kept the convolution, or that none matched."""
        rule = self._first(conv)
        if rule is None:
            return "no rule matches it"
        hook = for_layout(rule.layout)
        return hook.why_kept(conv) if isinstance(hook, Nchwc) else f"rule {self.rules.index(rule) + 1} keeps it"

    def _first(self, conv: Conv) -> Rule | None:
        return next((rule for rule in self.rules if rule.matches(conv)), None)


@dataclass(frozen=True)
class Numbered:
    """A hook asked about a part of a model: it is told the numbers that convolutions have in the whole model."""

    hook: Hook
    numbers: tuple[int, ...]

    def __call__(self, conv: Conv) -> ConvLayout | None:
        """What the hook answers for the convolution of the whole model."""
        return self.hook(self._in_the_whole(conv))

    def why_kept(self, conv: Conv) -> str:
        """The reason of a table of rules, see `Table.why_kept`; none for other hooks."""
        return self.hook.why_kept(self._in_the_whole(conv)) if isinstance(self.hook, Table) else ""

    def _in_the_whole(self, conv: Conv) -> Conv:
        return replace(conv, index=self.numbers[conv.index])


def for_layout(layout: str) -> Hook:
    """The built-in hook for a layout's name: `keep`, `NHWC`, `NCHW`, or `NCHW<block>c`."""
    if layout.startswith("NCHW") and layout.endswith("c"):
        return Nchwc(int(layout[len("NCHW") : -1]))
    return BUILT_IN[layout.lower()]


BUILT_IN: dict[str, Hook] = {"keep": keep, "nhwc": nhwc, "nchw": nchw}


def is_built_in(hook: Hook) -> bool:
    """Whether no code of the user's runs when the hook is asked."""
    if isinstance(hook, Numbered):
        return is_built_in(hook.hook)
    return isinstance(hook, Nchwc | Table) or any(hook is known for known in BUILT_IN.values())


def is_allowed(name: str, prefixes: Sequence[str]) -> bool:
    """Whether a dotted name, or `module:function`, lies under one of the prefixes."""
    dotted = name.replace(":", ".") + "."
    return any(prefix and dotted.startswith(prefix.replace(":", ".").rstrip(".") + ".") for prefix in prefixes)


def resolve(name: str, allowed: Sequence[str] = ()) -> Hook:
    """The hook a name stands for: a built-in without options, or `package.module:function` of the user's code.

    Raises UsageError when there is no such hook, or when it is not under one of the `allowed` prefixes: by its name,
    and again by the module that really defines it, which an innocent name may only have imported. Importing a
    user's hook runs the user's code: only worker processes call this.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    module_name, _, function_name = name.partition(":")
    if not function_name:
        known = ", ".join([*BUILT_IN, "nchwc"])
        raise UsageError(f'unknown hook "{name}": expected one of {known}, or package.module:function')
    if not is_allowed(name, allowed):
        raise UsageError(not_allowed(name))
    try:
        hook = getattr(importlib.import_module(module_name), function_name)
    except ImportError as error:
        raise UsageError(f'hook "{name}": cannot import {module_name}: {error}') from error
    except AttributeError as error:
        raise UsageError(f'hook "{name}": module {module_name} has no function {function_name}') from error
    if not callable(hook):
        raise UsageError(f'hook "{name}": {function_name} is not a function')
    home = getattr(hook, "__module__", None) or type(hook).__module__
    if not is_allowed(home, [*allowed, module_name]):
        raise UsageError(f'hook "{name}" is defined in {home}, which is not allowed: allow it by that name')
    found: Hook = hook
    return found


def not_allowed(name: str) -> str:
    """What to say about a hook that nobody allowed."""
    module = name.partition(":")[0]
    return (
        f'hook "{name}" is code that the spec wants to run, and it is not allowed yet. If you trust it, say '
        f'--allow-hooks {module}, or put allow-hooks = ["{module}"] under [tool.layoutlab] in pyproject.toml'
    )


def source_sha256(hook: Hook) -> str:
    """Hash of the source file that defines the hook, so that a changed hook is a changed variant."""
    path = inspect.getsourcefile(hook)
    if path is None:
        raise UsageError(f"hook {hook!r} has no source file: define it in a module")
    with open(path, "rb") as source:
        return hashlib.sha256(source.read()).hexdigest()
