"""Tables of the time that each function takes: the debug executor's, and those of TVM's profiler since 0.8.

Node Name                        Ops                              Time(us)  Time(%)  Shape               Inputs  Outputs
fused_nn_contrib_conv2d_NCHWc_9  fused_nn_contrib_conv2d_NCHWc_9  6791.89   12.747   (1, 6, 71, 71, 32)  2       1

Name                             Duration (us)  Percent  Device  Count  Argument Shapes
fused_nn_contrib_conv2d_NCHWc_9       6,791.89    12.75  cpu0        1  float32[1, 10, 73, 73, 8], ...
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from statistics import median

# Bounded, so that no line makes matching slow.
_NUMBER = r"\d[\d,]{0,20}\.?\d{0,20}(?:e[+-]?\d{1,2})?"
_DEBUG_ROW = re.compile(
    rf"^\s*(?P<name>\S+)\s+(?P<function>\S+)\s+(?P<us>{_NUMBER})\s+(?P<percent>{_NUMBER})\s+"
    r"\((?P<shape>[\d, ]*)\)\s+(?P<inputs>\d+)\s+(?P<outputs>\d+)\b"
)
_PROFILER_ROW = re.compile(
    rf"^\s*(?P<function>[A-Za-z_]\w*)\s+(?P<us>{_NUMBER})\s+(?P<percent>{_NUMBER})\s+[a-z]+\d+\s+(?P<count>\d+)\s*(?P<rest>.*)$"
)
_TOTAL = re.compile(rf"^\s*Total_time\s+-\s+({_NUMBER})")
_SHAPE = re.compile(r"\w+\[([\d, ]+)\]")
_COUNTER = re.compile(r"_\d+$")
_PREFIXES = ("tvmgen_default_", "fused_")

# What a function does is told by the heaviest operator in its name, the first of these that is there.
_KINDS = (
    ("depthwise_conv2d", "depthwise conv2d"),
    ("conv2d_transpose", "conv2d_transpose"),
    ("conv2d_nchwc", "conv2d NCHWc"),
    ("conv2d", "conv2d"),
    ("batch_matmul", "batch_matmul"),
    ("dense", "dense"),
    ("max_pool2d", "max pool"),
    ("avg_pool2d", "average pool"),
    ("softmax", "softmax"),
    ("layout_transform", "layout change"),
    ("transpose", "layout change"),
)


@dataclass(frozen=True, kw_only=True)
class FunctionTime:
    """One row: a function, or `calls` calls of it together. `shape` is that of its output, () where it is not told."""

    name: str
    function: str
    us: float
    percent: float | None
    shape: tuple[int, ...]
    calls: int = 1

    @property
    def kind(self) -> str:
        """What the function does, by the heaviest operator in its name."""
        bare = bare_name(self.function).lower()
        return next((kind for word, kind in _KINDS if word in bare), "elementwise and others")

    @property
    def changes_layout(self) -> bool:
        """Whether a change of layout stands in its name, alone or fused with others."""
        bare = bare_name(self.function).lower().replace("conv2d_transpose", "")
        return "layout_transform" in bare or "transpose" in bare

    @property
    def elements(self) -> int:
        """Elements of its output, 0 where the shape is not told."""
        return prod(self.shape) if self.shape else 0


@dataclass(frozen=True, kw_only=True)
class FunctionTimes:
    """The functions of one table, and the time of all by what the table says (its total, or its percentages)."""

    rows: tuple[FunctionTime, ...]
    total_us: float

    @property
    def shown_us(self) -> float:
        """The sum of the rows that are there, less than the total when some are missing."""
        return sum(row.us for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class Peer:
    """How a function compares with the others of its kind: medians of their time, and of their time an element."""

    others: int
    median_us: float
    times_median: float
    times_elements: float | None
    times_per_element: float | None


def bare_name(function: str) -> str:
    """The operators in a fused name: without its prefixes, and without the number that only counts equal names."""
    for prefix in _PREFIXES:
        function = function.removeprefix(prefix)
    return _COUNTER.sub("", function)


def find_functions(lines: Sequence[str]) -> FunctionTimes | None:
    """The rows of all tables in the lines of a log, slowest first; None when there is none."""
    rows = [row for line in lines if (row := _row(line)) is not None]
    if not rows:
        return None
    rows.sort(key=lambda row: -row.us)
    totals = [_float(found[1]) for line in lines if (found := _TOTAL.match(line))]
    slowest = rows[0]
    by_percent = slowest.us / slowest.percent * 100 if slowest.percent else 0.0
    shown = sum(row.us for row in rows)
    # Percentages are rounded: what they add up to is at least what is there.
    return FunctionTimes(rows=tuple(rows), total_us=sum(totals) or max(shown, by_percent))


def compare(row: FunctionTime, times: FunctionTimes) -> Peer | None:
    """The function next to the others of its kind; None when it has fewer than two."""
    others = [other for other in times.rows if other.kind == row.kind and other is not row]
    if len(others) < 2:
        return None
    middle = median(other.us / other.calls for other in others)
    sized = [other for other in others if other.elements]
    elements = per_element = None
    if row.elements and sized:
        elements = row.elements / median(other.elements for other in sized)
        per_element = row.us / row.calls / row.elements / median(o.us / o.calls / o.elements for o in sized)
    return Peer(
        others=len(others),
        median_us=middle,
        times_median=row.us / row.calls / middle if middle else 0.0,
        times_elements=elements,
        times_per_element=per_element,
    )


def _row(line: str) -> FunctionTime | None:
    if found := _DEBUG_ROW.match(line):
        return FunctionTime(
            name=found["name"],
            function=found["function"],
            us=_float(found["us"]),
            percent=_float(found["percent"]),
            shape=_shape(found["shape"]),
        )
    if found := _PROFILER_ROW.match(line):
        shapes = _SHAPE.findall(found["rest"])
        return FunctionTime(
            name=found["function"],
            function=found["function"],
            us=_float(found["us"]),
            percent=_float(found["percent"]),
            # The last argument of a function is what it writes.
            shape=_shape(shapes[-1]) if shapes else (),
            calls=max(1, int(found["count"])),
        )
    return None


def _float(text: str) -> float:
    return float(text.replace(",", ""))


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())
