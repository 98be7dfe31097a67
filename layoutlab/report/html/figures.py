"""The figures of report.html: times, ratios, rounds, how tuning went. Each is None where there is nothing to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from layoutlab.report.comparison import Comparison, Row
from layoutlab.report.html.svg import FAINT, INK, PAPER, SERIES, new_figure, to_svg
from layoutlab.tuning_progress import Progress

# Values that differ by more than this are shown on a logarithmic axis.
_WIDE = 6.0
_ROW_IN = 0.34
# Height of the axis and its label.
_AXIS_IN = 0.55
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure of the page: its SVG, and what is written below it."""

    svg: str
    caption: str


def times_plot(comparison: Comparison) -> Plot | None:
    """The time of each row: measured with its spread, simulated with its parts."""
    rows = [row for row in comparison.rows if row.ms is not None]
    if not rows:
        return None
    figure, (axes,) = new_figure(_AXIS_IN + _ROW_IN * len(rows) + (0.3 if comparison.simulated else 0))
    wide = _log_if_wide(axes, [row.ms or 0.0 for row in rows]) if not comparison.simulated else False
    for place, row in enumerate(rows):
        if row.latency:
            axes.plot([row.latency.p5_ms, row.latency.p90_ms], [place, place], color=SERIES[0], linewidth=1.2)
            axes.plot([row.latency.median_ms], [place], "o", color=SERIES[0], markersize=6)
    if comparison.simulated:
        _stack_simulated(axes, rows)
    _label_values(axes, [(row.latency.p90_ms if row.latency else row.ms or 0.0, f"{row.ms:.3f}") for row in rows])
    _name_rows(axes, [row.name for row in rows])
    axes.set_xlabel(f"{'simulated ' if comparison.simulated else ''}ms{', logarithmic' if wide else ''}")
    text = "; ".join(f"{row.name}: {row.ms:.3f} ms" for row in rows)
    caption = (
        "Dots are medians; lines go from the 5th to the 90th percentile of all samples."
        if not comparison.simulated
        else "Arithmetic, and cache misses that the prefetcher does not foresee. The figures are exact: no spread."
    )
    return Plot(svg=to_svg(figure, "times", f"Time of one inference. {text}"), caption=caption)


def _stack_simulated(axes: Axes, rows: Sequence[Row]) -> None:
    parts = [(row.simulated.compute_kcycles / row.simulated.kcycles, row.ms or 0.0) for row in rows if row.simulated]
    compute = [share * ms for share, ms in parts]
    memory = [(1 - share) * ms for share, ms in parts]
    places = range(len(parts))
    axes.barh(places, compute, height=0.6, color=SERIES[0], label="compute")
    axes.barh(places, memory, left=compute, height=0.6, color=SERIES[1], label="memory")
    axes.legend(ncols=2, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0)


def ratios_plot(comparison: Comparison) -> Plot | None:
    """How many times TFLite's latency each variant takes, with the interval where there is one."""
    rows = [(row.name, row.ratio) for row in comparison.rows if row.ratio is not None]
    if not rows:
        return None
    figure, (axes,) = new_figure(_AXIS_IN + _ROW_IN * len(rows))
    wide = _log_if_wide(axes, [1.0, *(ratio.value for _, ratio in rows)])
    axes.axvline(1, color=INK, linewidth=0.8, linestyle=(0, (3, 2)))
    for place, (_, ratio) in enumerate(rows):
        if ratio.low is not None and ratio.high is not None:
            axes.plot([ratio.low, ratio.high], [place, place], color=SERIES[0], linewidth=3, solid_capstyle="butt")
        axes.plot([ratio.value], [place], "D", color=SERIES[0], markersize=5, markeredgecolor=PAPER)
    _label_values(axes, [(ratio.high or ratio.value, f"{ratio.value:.2f} {ratio.verdict}") for _, ratio in rows])
    _name_rows(axes, [name for name, _ in rows])
    axes.set_xlabel(f"times TFLite's latency{', logarithmic' if wide else ''}: left of 1 is faster")
    text = "; ".join(f"{name}: {ratio.value:.2f}, {ratio.verdict}" for name, ratio in rows)
    intervals = "" if comparison.simulated else " Bars are 95 % intervals by bootstrap over rounds."
    return Plot(
        svg=to_svg(figure, "ratios", f"Latency as a multiple of TFLite's. {text}"),
        caption=f"The dashed line is TFLite.{intervals}",
    )


def rounds_plot(comparison: Comparison) -> Plot | None:
    """Each round of each row, as a deviation from the row's median."""
    rows = [row for row in comparison.rows if row.latency and row.name in comparison.samples_ms]
    if not rows:
        return None
    figure, panels = new_figure(_AXIS_IN + 0.62 * len(rows), len(rows))
    for axes, row in zip(panels, rows, strict=True):
        _strip(axes, row, comparison.samples_ms[row.name])
    panels[-1].set_xlabel("round")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    text = "; ".join(f"{row.name}: median absolute deviation {_spread(row):.1f} %" for row in rows)
    return Plot(
        svg=to_svg(figure, "rounds", f"Rounds as deviations from each row's median. {text}"),
        caption="Deviation from the row's median in percent: diamonds are the medians of rounds, small dots samples "
        "(cut off where they are far out). Crosses mark disturbed rounds.",
    )


def _strip(axes: Axes, row: Row, rounds: Sequence[Sequence[float]]) -> None:
    assert row.latency is not None
    middle = row.latency.median_ms
    medians = [100 * (float(np.median(samples)) / middle - 1) for samples in rounds]
    numbers = range(1, len(rounds) + 1)
    # One sample that is far out must not flatten all others.
    reach = max(2.0, 1.6 * max(map(abs, medians)))
    for number, samples in zip(numbers, rounds, strict=True):
        deviations = [min(max(100 * (sample / middle - 1), -reach), reach) for sample in samples]
        axes.plot([number] * len(deviations), deviations, ".", color=FAINT, markersize=3)
    axes.plot(numbers, medians, "D", color=SERIES[0], markersize=4.5)
    disturbed = [number for number in (row.rounds.disturbed if row.rounds else {}) if number in numbers]
    axes.plot(disturbed, [medians[number - 1] for number in disturbed], "x", color=SERIES[4], markersize=9)
    axes.axhline(0, color=FAINT, linewidth=0.6)
    axes.set_ylim(-1.15 * reach, 1.15 * reach)
    axes.set_xlim(0.4, len(rounds) + 0.6)
    axes.yaxis.set_major_locator(MaxNLocator(3, symmetric=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+.0f} %" if value else "0"))
    axes.set_ylabel(row.name, rotation=0, horizontalalignment="right", verticalalignment="center")


def _spread(row: Row) -> float:
    assert row.latency is not None
    return 100 * row.latency.mad_ms / row.latency.median_ms


def progress_plot(progress: Mapping[str, Sequence[Progress]], simulated: bool) -> Plot | None:
    """The best sum of ops of each variant over its trials, from where every task has a time that gets one."""
    curves = {name: complete(points) for name, points in progress.items()}
    curves = {name: points for name, points in curves.items() if len(points) > 1}
    if not curves:
        return None
    figure, (axes,) = new_figure(2.5)
    times_ms = [point.best_us / 1e3 for points in curves.values() for point in points]
    wide = _log_if_wide(axes, times_ms, "y")
    for number, (name, points) in enumerate(curves.items()):
        axes.plot(
            [point.trials for point in points],
            [point.best_us / 1e3 for point in points],
            drawstyle="steps-post",
            color=SERIES[number % len(SERIES)],
            linewidth=1.6,
            marker=MARKERS[number % len(MARKERS)],
            markersize=4.5,
            markevery=max(1, len(points) // 8),
            label=name,
        )
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(axis="y")
    axes.legend(ncols=3, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0)
    axes.set_xlabel("trials")
    axes.set_ylabel(f"best sum of ops, {'simulated ' if simulated else ''}ms{', log' if wide else ''}")
    text = "; ".join(
        f"{name}: from {points[0].best_us / 1e3:.3f} ms at {points[0].trials} trials to "
        f"{points[-1].best_us / 1e3:.3f} ms at {points[-1].trials}"
        for name, points in curves.items()
    )
    return Plot(
        svg=to_svg(figure, "tuning", f"Best sum of ops over trials. {text}"),
        caption="Sum of the best times of all ops, each run alone: it shows how tuning went, and is not the latency. "
        "A curve begins where every task has its first time, or where records were taken over.",
    )


def complete(points: Sequence[Progress]) -> list[Progress]:
    """The points whose sum is over all the tasks that have a time in the end: only these can be compared."""
    return [point for point in points if point.tuned and point.tuned == points[-1].tuned]


def _log_if_wide(axes: Axes, values: Sequence[float], axis: str = "x") -> bool:
    """Scale the axis for these values, and say whether it is logarithmic."""
    low, high = min(values), max(values)
    wide = low > 0 and high / low > _WIDE
    along = axes.xaxis if axis == "x" else axes.yaxis
    if wide:
        (axes.set_xscale if axis == "x" else axes.set_yscale)("log")
        along.set_major_locator(LogLocator(subs=(1, 2, 5)))
        along.set_minor_locator(LogLocator(subs="all"))
        along.set_minor_formatter(FuncFormatter(lambda *_: ""))
    elif axis == "x":
        along.set_major_locator(MaxNLocator(6))
    along.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    return wide


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")


def _label_values(axes: Axes, labels: Sequence[tuple[float, str]]) -> None:
    """Texts to the right of what is drawn, with room for them."""
    for place, (value, text) in enumerate(labels):
        axes.annotate(
            text, (value, place), xytext=(7, 0), textcoords="offset points", verticalalignment="center", fontsize=9
        )
