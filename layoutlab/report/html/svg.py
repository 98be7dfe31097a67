"""Figures of matplotlib as SVG that belongs to a page: its colours, its font, and ids of its own.

Colours are drawn as stand-ins and become CSS variables, so that a figure follows the page from light to dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# Stand-ins, none of which occurs otherwise, and what they become. The series are those of Okabe and Ito, whose colours
# people with any colour vision tell apart; page.css has them.
INK, FAINT, PAPER = "#010203", "#040506", "#070809"
SERIES = ("#0a0001", "#0a0002", "#0a0003", "#0a0004", "#0a0005", "#0a0006", "#0a0007", "#0a0008")
_VARIABLES = {
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    PAPER: "var(--paper)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, 1)},
}
# So wide that text has its own size on a phone.
_WIDTH_IN = 4.7
_FONT = "'DejaVu Sans'"
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "layoutlab",
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": FAINT,
    "grid.linewidth": 0.4,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "figure.facecolor": "none",
}
_NAMESPACE = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
ElementTree.register_namespace("", "http://www.w3.org/2000/svg")
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


@contextmanager
def settings() -> Iterator[None]:
    """How figures look, whatever a user's own settings of matplotlib are. Draw and write figures inside of it."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def new_figure(height_in: float, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with axes one above the other, which share their horizontal axis."""
    figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)
    return figure, [row[0] for row in axes]


def to_svg(figure: Figure, name: str, text: str) -> str:
    """The figure as an SVG element. `name` makes its ids unique on the page, `text` says what it shows."""
    buffer = io.StringIO()
    FigureCanvasSVG(figure).print_svg(buffer, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    root = ElementTree.fromstring(buffer.getvalue())
    for alien in (*root.findall(f"{_NAMESPACE}metadata"), *root.findall(f"{_NAMESPACE}defs[{_NAMESPACE}style]")):
        # Such a style would be that of the whole page.
        root.remove(alien)
    for element in root.iter():
        _adapt(element, name)
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    root.attrib |= {"role": "img", "aria-labelledby": f"{name}-title"}
    title = ElementTree.Element(f"{_NAMESPACE}title", {"id": f"{name}-title"})
    title.text = text
    root.insert(0, title)
    return ElementTree.tostring(root, encoding="unicode")


def _adapt(element: ElementTree.Element, name: str) -> None:
    for attribute, value in element.attrib.items():
        if attribute == "id":
            element.set(attribute, f"{name}-{value}")
        elif attribute == _HREF:
            element.set(attribute, value.replace("#", f"#{name}-"))
        else:
            element.set(attribute, _restyle(value, name))


def _restyle(value: str, name: str) -> str:
    value = value.replace("url(#", f"url(#{name}-").replace(_FONT, "inherit")
    return re.sub(r"#[0-9a-f]{6}", lambda found: _VARIABLES.get(found[0], found[0]), value)
