"""The figures of report.html about functions: the time of each operator by variant, and the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator

from layoutlab.report.html.figures import MARKERS, Plot
from layoutlab.report.html.svg import FAINT, INK, PAPER, SERIES, new_figure, to_svg
from layoutlab.report.profile import main_type
from layoutlab.report.profile_data import Profile, ProfileRow
from layoutlab.roofline.peaks import Peaks

# A variant that takes so many times as long as the fastest would leave no room for the others.
_TOO_LONG = 4.0
_REST = "other"


def operators_plot(profiles: Mapping[str, Profile]) -> Plot | None:
    """A bar for each variant, with a piece for each function in the order of execution."""
    if not profiles:
        return None
    fastest_ms = min(profile.functions_ms for profile in profiles.values())
    shown = {name: profile for name, profile in profiles.items() if profile.functions_ms <= _TOO_LONG * fastest_ms}
    colours = _colours(list(shown.values()))
    figure, (axes,) = new_figure(0.55 + 0.42 * len(shown) + 0.2 * -(-len(colours) // 3))
    for place, profile in enumerate(shown.values()):
        _bar(axes, place, profile, colours)
    axes.set_yticks(range(len(shown)), list(shown))
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"{'simulated ' if _simulated(profiles) else ''}ms in functions")
    for name, colour in colours.items():
        axes.barh([0], [0], color=colour, label=name)
    axes.legend(ncols=3, loc="lower left", bbox_to_anchor=(-0.15, 1), borderaxespad=0, columnspacing=1, handlelength=1)
    left_out = [f"{name} ({profiles[name].functions_ms:.1f} ms)" for name in profiles if name not in shown]
    text = "; ".join(f"{name}: {_sums(profile)}" for name, profile in shown.items())
    return Plot(
        svg=to_svg(figure, "operators", f"Time in functions by type of operator. {text}"),
        caption="Each piece is a function, in the order of execution, in the colour of the operator in it that "
        "computes most." + (f" Left out, for they take too long: {', '.join(left_out)}." if left_out else ""),
    )


def _bar(axes: Axes, place: int, profile: Profile, colours: Mapping[str, str]) -> None:
    rows = sorted(profile.rows, key=lambda row: row.nodes)
    times_ms = np.array([row.time_ms for row in rows])
    axes.barh(
        [place] * len(rows),
        times_ms,
        left=np.concatenate([[0.0], np.cumsum(times_ms)[:-1]]),
        height=0.66,
        color=[_colour(row, colours) for row in rows],
        edgecolor=PAPER,
        linewidth=0.5,
    )


def _colours(profiles: Sequence[Profile]) -> dict[str, str]:
    """A colour for each type of operator, those that take longest first; the last for what is left."""
    times_ms: dict[str, float] = {}
    for profile in profiles:
        for row in profile.rows:
            times_ms[main_type(row)] = times_ms.get(main_type(row), 0.0) + row.time_ms
    ordered = sorted(times_ms, key=lambda name: (-times_ms[name], name))
    if len(ordered) > len(SERIES):
        ordered = [*ordered[: len(SERIES) - 1], _REST]
    return dict(zip(ordered, SERIES, strict=False))


def _colour(row: ProfileRow, colours: Mapping[str, str]) -> str:
    return colours.get(main_type(row)) or colours[_REST]


def _sums(profile: Profile) -> str:
    times_ms: dict[str, float] = {}
    for row in profile.rows:
        times_ms[main_type(row)] = times_ms.get(main_type(row), 0.0) + row.time_ms
    ordered = sorted(times_ms.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {ms:.3f} ms" for name, ms in ordered)


def _simulated(profiles: Mapping[str, Profile]) -> bool:
    return any(profile.simulated for profile in profiles.values())


def roofline_plot(profiles: Mapping[str, Profile]) -> Plot | None:
    """The speed of each function over its operations for each byte, below the device's peaks."""
    known = {name: profile for name, profile in profiles.items() if profile.peaks and _points(profile)}
    if not known:
        return None
    figure, (axes,) = new_figure(2.9)
    points = {name: _points(profile) for name, profile in known.items()}
    intensities = [intensity for found in points.values() for intensity, _, _ in found]
    peaks = next(iter(known.values())).peaks
    assert peaks is not None
    _roof(axes, peaks, min(intensities) / 2, max(intensities) * 2)
    for number, (name, found) in enumerate(points.items()):
        axes.scatter(
            [intensity for intensity, _, _ in found],
            [gflops for _, gflops, _ in found],
            s=[10 + 250 * share for _, _, share in found],
            marker=MARKERS[number % len(MARKERS)],
            facecolor=SERIES[number % len(SERIES)],
            edgecolor=PAPER,
            linewidth=0.4,
        )
        axes.plot([], [], MARKERS[number % len(MARKERS)], color=SERIES[number % len(SERIES)], markersize=5, label=name)
    axes.legend(ncols=3, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0)
    axes.set_xlabel("floating-point operations for each byte, logarithmic")
    axes.set_ylabel("GFLOP/s, log")
    text = "; ".join(f"{name}: {_of_bound(profile)}" for name, profile in known.items())
    return Plot(
        svg=to_svg(figure, "roofline", f"Speed of functions below the peaks of the device. {text}"),
        caption=f"Each mark is a function, larger where it takes longer. Lines are the device's peaks "
        f"({'measured' if peaks.measured else 'stated'}): {peaks.gflops:.1f} GFLOP/s, and "
        f"{'bandwidth' if len(peaks.streams) == 1 else 'the bandwidths of its nearest and farthest memory'}.",
    )


def _points(profile: Profile) -> list[tuple[float, float, float]]:
    """Intensity, GFLOP/s and share of the time of each function that computes."""
    return [(row.intensity, row.gflops, row.share) for row in profile.rows if row.intensity and row.gflops]


def _roof(axes: Axes, peaks: Peaks, low: float, high: float) -> None:
    rates = sorted({stream.gigabytes_per_s for stream in peaks.streams})
    for rate in dict.fromkeys((rates[0], rates[-1])):
        edge = min(max(peaks.gflops / rate, low), high)
        axes.plot([low, edge], [low * rate, edge * rate], color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
        axes.annotate(
            f"{rate:.0f} GB/s",
            (low, low * rate),
            xytext=(3, -1),
            textcoords="offset points",
            verticalalignment="center",
            fontsize=8,
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1},
        )
    axes.plot([low, high], [peaks.gflops] * 2, color=INK, linewidth=0.9)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.grid(which="major", color=FAINT)
    for along in (axes.xaxis, axes.yaxis):
        along.set_major_locator(LogLocator())
        along.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        along.set_minor_formatter(FuncFormatter(lambda *_: ""))


def _of_bound(profile: Profile) -> str:
    if profile.bounds_ms is None:
        return "no bound"
    return f"at least {profile.bounds_ms:.3f} of {profile.end_to_end_ms:.3f} ms by the peaks"
