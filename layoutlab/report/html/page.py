"""report.html from a comparison and the details of its run: the same bytes each time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from layoutlab.engine.base import LayoutTransform
from layoutlab.report.comparison import Comparison
from layoutlab.report.coverage import coverage_notes, coverage_records
from layoutlab.report.html.details import Details
from layoutlab.report.html.figures import Plot, complete, progress_plot, ratios_plot, rounds_plot, times_plot
from layoutlab.report.html.function_figures import operators_plot, roofline_plot
from layoutlab.report.html.svg import settings
from layoutlab.report.html.verdict import verdict
from layoutlab.report.pairs import pairs_cells, spread_cells
from layoutlab.report.peaks import peaks_text
from layoutlab.report.profile import computes
from layoutlab.report.profile_data import Profile
from layoutlab.report.rounds import conditions_text
from layoutlab.report.table import how_to_repeat, json_data, notes, table_cells

Cells = list[dict[str, str]]
# Functions of a variant that are shown; its profile has all.
_FUNCTIONS = 25
_NONE = "-"


def report_html(comparison: Comparison, details: Details) -> str:
    """The page: everything is in it, and it asks for nothing from elsewhere."""
    environment = Environment(
        loader=PackageLoader("layoutlab.report.html", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["css"] = Markup(environment.loader.get_source(environment, "page.css")[0])  # type: ignore[union-attr]
    with settings():
        plots = _plots(comparison, details)
    return environment.get_template("page.html").render(
        comparison=comparison,
        details=details,
        verdict=verdict(comparison),
        table=table_cells(comparison),
        plots={name: _marked(plot) for name, plot in plots.items()},
        pairs=pairs_cells(comparison.pairs),
        spread=spread_cells({row.name: row.latency for row in comparison.rows if row.latency}),
        profiles={name: _functions(profile) for name, profile in details.profiles.items()},
        limits=_limits(details),
        peaks=_peaks(details),
        tuning=_tuning(comparison, details),
        transforms={name: _transforms(found) for name, found in details.transforms.items()},
        coverage_notes=coverage_notes(comparison),
        coverage=_coverage(comparison),
        notes=[note for note in notes(comparison) if note not in coverage_notes(comparison)],
        conditions=_conditions(comparison),
        repeat=how_to_repeat(comparison),
        data=embedded(json_data(comparison)),
    )


def embedded(data: Any) -> Markup:
    """JSON for a script element: no text in it can end the element, or begin a comment."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _plots(comparison: Comparison, details: Details) -> dict[str, Plot]:
    found = {
        "times": times_plot(comparison),
        "ratios": ratios_plot(comparison),
        "rounds": rounds_plot(comparison),
        "operators": operators_plot(details.profiles),
        "progress": progress_plot(details.progress, comparison.simulated),
        "roofline": roofline_plot(details.profiles),
    }
    return {name: plot for name, plot in found.items() if plot is not None}


def _marked(plot: Plot) -> dict[str, Any]:
    # What ElementTree wrote is escaped.
    return {"svg": Markup(plot.svg), "caption": plot.caption}


def _functions(profile: Profile) -> dict[str, Any]:
    """The slowest functions of a variant, and how many there are."""
    cells = [
        {
            "computes": computes(row),
            "us": f"{1e3 * row.time_ms:.1f}",
            "share": f"{100 * row.share:.1f} %",
            "GFLOP/s": _number(row.gflops, ".1f"),
            "GB/s": _number(row.gigabytes_per_s, ".1f"),
            "of limit": _number(row.of_limit, ".0%"),
            "bound by": row.binds or _NONE,
            "best us": _number(row.best_us, ".1f"),
            "function": row.function,
        }
        for row in profile.rows[:_FUNCTIONS]
    ]
    return {"cells": cells, "all": len(profile.rows), "profile": profile}


def _limits(details: Details) -> Cells:
    """What the peaks of the device say of each profiled variant."""
    return [
        {
            "variant": name,
            "end to end, ms": f"{profile.end_to_end_ms:.3f}",
            "in functions": f"{profile.functions_ms:.3f}",
            "at least": f"{bounds_ms:.3f}",
            "of limit": f"{bounds_ms / profile.end_to_end_ms:.0%}",
            "GFLOP/s": f"{profile.flop / profile.end_to_end_ms / 1e6:.1f}",
        }
        for name, profile in details.profiles.items()
        if (bounds_ms := profile.bounds_ms) is not None
    ]


def _peaks(details: Details) -> str:
    peaks = next((profile.peaks for profile in details.profiles.values() if profile.peaks), None)
    return peaks_text(peaks) if peaks else ""


def _tuning(comparison: Comparison, details: Details) -> list[str]:
    """For each tuned variant without a curve, why."""
    found = []
    for row in comparison.rows:
        if not row.tuned or row.ops is None or len(complete(details.progress.get(row.name, ()))) > 1:
            continue
        trials = row.trials or 0
        origin = comparison.records.get(row.name, {}).get("origin")
        source = f"its records ({trials:,} trials) are from {origin['source']}" if origin else _no_curve(trials)
        found.append(f"{row.name}: no curve, for {source}")
    return found


def _no_curve(trials: int) -> str:
    return "how its tuning went was not kept" if trials else "there was nothing to tune"


def _transforms(transforms: Sequence[LayoutTransform]) -> Cells:
    return [
        {
            "op": found.op,
            "after": found.after,
            "before": found.before,
            "from": _shape(found.from_shape),
            "to": _shape(found.to_shape),
            "bytes moved": f"{found.moved_bytes:,}" if found.moved_bytes else "none: free",
        }
        for found in transforms
    ]


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _coverage(comparison: Comparison) -> dict[str, Cells]:
    """The tasks of each variant, most of the time first."""
    found: dict[str, Cells] = {name: [] for name, tasks in comparison.coverage.items() if tasks}
    for record in sorted(coverage_records(comparison), key=lambda record: (-(record["share"] or 0), record["index"])):
        found[record["variant"]].append(
            {
                "task": record["name"],
                "ops": str(record["ops"]),
                "kind": record["kind"] or _NONE,
                "layout": record["layout"] or _NONE,
                "trials": f"{record['trials']}" + (f" ({record['failed']} failed)" if record["failed"] else ""),
                "best us": _number(record["best_us"], ".2f"),
                "share": _number(record["share"], ".1%"),
                "GFLOP/s": _number(record["gflops"], ".1f"),
                "no record because": record["untuned_because"] or _NONE,
            }
        )
    return found


def _conditions(comparison: Comparison) -> list[str]:
    """The state of the machine, one thing a line."""
    if comparison.simulated:
        return []
    return conditions_text(comparison.conditions).removeprefix("conditions: ").split(", ")


def _number(value: float | None, form: str) -> str:
    return _NONE if value is None else format(value, form)
