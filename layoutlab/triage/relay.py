"""Convolutions in Relay's text form, with their layouts, and the changes of layout around them.

%2 = nn.conv2d(%0, %1, strides=[2, 2], padding=[0, 0, 0, 0], channels=32, kernel_size=[3, 3]) /* ty=Tensor[...] */;
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_CONV = re.compile(
    r"(?:(?P<name>%[\w.]+)\s*=\s*)?\b(?P<op>nn\.(?:contrib_)?(?:depthwise_)?conv2d\w*)\((?P<arguments>[^;]*)"
)
_LIST = r"\[([\d, ]*)\]"
_TYPE = re.compile(r"ty=Tensor\[\(([\d, ]*)\),\s*(\w+)\]")
_TRANSFORM = re.compile(r'\blayout_transform\([^;"]{0,200}src_layout="(\w{1,20})",\s*dst_layout="(\w{1,20})"')
_TRANSPOSE = re.compile(r"\btranspose\(")


@dataclass(frozen=True, kw_only=True)
class RelayConv:
    """One convolution. `layout` is the data's; Relay leaves NCHW out, so `written` says whether it stood there.

    `output` is the shape in the line's type, () without one.
    """

    name: str
    op: str
    layout: str
    written: bool
    channels: int | None
    kernel: tuple[int, ...]
    groups: int
    output: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class RelayText:
    """All convolutions of a log, and how often each `layout_transform` (from, to) and `transpose` stands in it."""

    convs: tuple[RelayConv, ...]
    transforms: dict[tuple[str, str], int]
    transposes: int


def find_relay(lines: Sequence[str]) -> RelayText:
    """Everything about layouts in the Relay lines of a log."""
    transforms: Counter[tuple[str, str]] = Counter()
    for line in lines:
        transforms.update((source, made) for source, made in _TRANSFORM.findall(line))
    return RelayText(
        convs=tuple(_conv(found) for line in lines for found in _CONV.finditer(line) if "(%" in line),
        transforms=dict(transforms),
        transposes=sum(len(_TRANSPOSE.findall(line)) for line in lines if "%" in line and "axes=" in line),
    )


def _conv(found: re.Match[str]) -> RelayConv:
    arguments = found["arguments"]
    layout = re.search(r'\bdata_layout="(\w+)"', arguments)
    channels = re.search(r"\bchannels=(\d+)", arguments)
    groups = re.search(r"\bgroups=(\d+)", arguments)
    made = _TYPE.findall(arguments)
    return RelayConv(
        name=found["name"] or "",
        op=found["op"],
        layout=layout[1] if layout else "NCHW",
        written=layout is not None,
        channels=int(channels[1]) if channels else None,
        kernel=_numbers(arguments, "kernel_size"),
        groups=int(groups[1]) if groups else 1,
        output=_split(made[-1][0]) if made else (),
    )


def _numbers(arguments: str, name: str) -> tuple[int, ...]:
    found = re.search(rf"\b{name}={_LIST}", arguments)
    return _split(found[1]) if found else ()


def _split(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())
