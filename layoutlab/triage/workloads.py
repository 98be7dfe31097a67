"""Warnings of AutoTVM that an operator has no tuning record: which workloads, for which targets.

Forms, from TVM 0.6 to 0.19:

    Cannot find config for target=TARGET, workload=('conv2d', (1, 3, 225, 225, 'float32'), ...). A fallback ...
    Cannot find config for target=TARGET, workload=('conv2d_nchw.x86', ('TENSOR', (1, 3, 8, 8), 'float32'), ...). ...
    Cannot find tuning records for:\\n    target=TARGET\\n    key=(...)          (0.8 and later, level DEBUG)
    One or more operators have not been tuned.                                    (0.8 and later, once a process)
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]

_BEGIN = re.compile(r"Cannot find (?:config for|tuning records for:?)\s*")
_TARGET = re.compile(r"target=(.*?),?\s*(?:workload|key)=(?=\()", re.DOTALL)
_SOME_UNTUNED = "operators have not been tuned"
# A warning is one line, in terminals of 80 columns perhaps a dozen.
_LONGEST = 3000
_MOST_LINES = 24

_LAYOUT = re.compile(r"N(?:CHW(?:\d*c)?|HWC)|HWCN")
_LAYOUT_IN_NAME = re.compile(r"nchw_?c|nchw|nhwc|hwcn", re.IGNORECASE)
_KERNEL_LAYOUTS = {"NCHW": "OIHW", "NHWC": "HWIO", "HWCN": "HWIO"}


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A computation as AutoTVM names it.

    `op` is the operator (conv2d, depthwise_conv2d, dense, ...), `template` the name as it was written. `layout` is that
    of the data, "" where the operator has none (dense) or the log does not say. Shapes are as they stand in the log, in
    the layout's order; `strides` are None where there are none.
    """

    op: str
    template: str
    layout: str
    data: Shape
    kernel: Shape
    strides: Shape | None
    dtype: str

    @property
    def kernel_layout(self) -> str:
        """The order of the kernel's dimensions in TVM's convolutions of this layout, "" where it is not told."""
        if self.op == "depthwise_conv2d" and self.layout == "NHWC":
            return "HWOI"
        return _KERNEL_LAYOUTS.get(self.layout, "") if "conv2d" in self.op else ""


@dataclass(frozen=True, kw_only=True)
class Untuned:
    """What the warnings of one log say.

    `workloads` holds each untuned workload with how often it was named, `targets` each target likewise; `cut_short`
    counts warnings whose end is missing, and `unnamed` those that name no workload.
    """

    workloads: dict[Workload, int]
    targets: dict[str, int]
    cut_short: int
    unnamed: int


def find_untuned(lines: Sequence[str]) -> Untuned:
    """All warnings about missing tuning records in the lines of a log."""
    workloads: Counter[Workload] = Counter()
    targets: Counter[str] = Counter()
    cut_short = 0
    for warning in _warnings(lines):
        target, workload = _read(warning)
        if target:
            targets[target] += 1
        if workload is None:
            cut_short += 1
        else:
            workloads[workload] += 1
    return Untuned(
        workloads=dict(workloads),
        targets=dict(targets),
        cut_short=cut_short,
        unnamed=sum(_SOME_UNTUNED in line for line in lines),
    )


def _warnings(lines: Sequence[str]) -> Iterator[str]:
    """The text of each warning and some that follows, lines joined: terminals and mail break long ones anywhere."""
    for number, line in enumerate(lines):
        places = [found.start() for found in _BEGIN.finditer(line)]
        for place, end in zip(places, [*places[1:], len(line)], strict=False):
            text = line[place:end]
            if end == len(line):
                text += "".join(_following(lines, number + 1))
            yield text[:_LONGEST]


def _following(lines: Sequence[str], begin: int) -> Iterator[str]:
    for line in lines[begin : begin + _MOST_LINES]:
        if _BEGIN.search(line) or line.startswith("[Task"):
            return
        yield line


def _read(warning: str) -> tuple[str, Workload | None]:
    """Target and workload of a warning; "" and None where they are missing or cut."""
    found = _TARGET.search(warning)
    if found is None:
        return "", None
    target = " ".join(found[1].split())
    text = _balanced(warning[found.end() :])
    return target, None if text is None else read_workload(text)


def _balanced(text: str) -> str | None:
    """The tuple that `text` begins with; None when its end is missing."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[: position + 1]
    return None


def read_workload(text: str) -> Workload | None:
    """A workload from the tuple that AutoTVM prints; None when it is not one."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    if not isinstance(value, tuple) or len(value) < 2 or not isinstance(value[0], str):
        return None
    name, arguments = value[0], value[1:]
    tensors = [tensor for tensor in map(_tensor, arguments) if tensor is not None]
    if not tensors:
        return None
    kernel = tensors[1][0] if len(tensors) > 1 else ()
    op = _op(name)
    return Workload(
        op=op,
        template=name,
        layout=_layout(name, arguments) if "conv2d" in op or "pool" in op else "",
        data=tensors[0][0],
        kernel=kernel,
        strides=_strides(arguments),
        dtype=tensors[0][1],
    )


def _tensor(value: Any) -> tuple[Shape, str] | None:
    """Shape and dtype of a tensor, `(1, 3, 'float32')` or `('TENSOR', (1, 3), 'float32')`."""
    if not isinstance(value, tuple) or len(value) < 2 or not isinstance(value[-1], str):
        return None
    shape = value[1] if value[0] == "TENSOR" and len(value) == 3 else value[:-1]
    if not isinstance(shape, tuple) or not shape or not all(isinstance(extent, int) for extent in shape):
        return None
    return shape, value[-1]


def _strides(arguments: tuple[Any, ...]) -> Shape | None:
    """The first pair of plain numbers: that is where every template of a convolution has them."""
    for value in arguments:
        if isinstance(value, tuple) and value and all(isinstance(part, int) for part in value):
            return value
    return None


def _op(name: str) -> str:
    bare = name.split(".")[0].lower()
    for op in ("depthwise_conv2d", "group_conv2d", "conv2d_transpose", "conv2d", "conv3d", "conv1d"):
        if op in bare:
            return op
    return next((op for op in ("batch_matmul", "dense") if op in bare), bare)


def _layout(name: str, arguments: tuple[Any, ...]) -> str:
    """The data's layout: the first that is written out, else the one in the template's name, else ""."""
    found = _LAYOUT_IN_NAME.search(name)
    if found and found[0].lower() in ("nchwc", "nchw_c"):
        return "NCHWc"
    written = [value for value in arguments if isinstance(value, str) and _LAYOUT.fullmatch(value)]
    if written:
        return str(written[0])
    return found[0].upper() if found else ""
