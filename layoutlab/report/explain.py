"""The forms of an explanation: text, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from tabulate import tabulate

from layoutlab.explaining import Explanation
from layoutlab.report.causes import ExplainedRow, microseconds
from layoutlab.report.files import write_texts
from layoutlab.report.profile import computes

_NONE = "-"
_LEFT = ("computes", "likely cause")
# Characters of a line of these columns.
_WIDEST = 60


def write_explanation(explanation: Explanation, folder: Path) -> None:
    """Write explain.<variant>.csv and explain.<variant>.json. Raises StoreError as `write_texts` does."""
    name = f"explain.{explanation.variant}"
    data = json.dumps(_data(explanation), indent=1) + "\n"
    write_texts({f"{name}.csv": _csv(explanation), f"{name}.json": data}, folder)


def explanations_text(explanations: Sequence[Explanation], form: Literal["text", "csv", "json"]) -> str:
    """The explanations of several variants in one form."""
    if form == "text":
        return "\n".join(map(_text, explanations))
    if form == "json":
        return json.dumps({found.variant: _data(found) for found in explanations}, indent=1) + "\n"
    return "".join(_csv(found, header=at == 0) for at, found in enumerate(explanations))


# Times by the name of their experiment, as tables head them.
_TIMES: dict[str, tuple[str, Callable[[ExplainedRow], float | None]]] = {
    "again": ("re-measured us", lambda row: row.again_us),
    "warm": ("alone warm us", lambda row: row.warm_us),
    "cold": ("alone cold us", lambda row: row.cold_us),
    "transform": ("transform us", lambda row: row.transform_us),
    "unfused": ("unfused us", lambda row: row.unfused_us),
}


def _text(explanation: Explanation) -> str:
    word = "simulated " if explanation.simulated else ""
    heading = f"{explanation.variant}: {explanation.end_to_end_ms:.3f} {word}ms end to end, on {explanation.device}"
    if not explanation.rows:
        nothing = "no function is flagged as slower than its record promised; --top N explains the N slowest as well"
        return f"{heading}\n\n{nothing}\n"
    lines = [_line(row, explanation) for row in explanation.rows]
    table = tabulate(
        lines,
        headers="keys",
        tablefmt="simple",
        disable_numparse=True,
        colalign=["left" if header in _LEFT else "right" for header in lines[0]],
        maxcolwidths=[_WIDEST if header in _LEFT else None for header in lines[0]],
    )
    return "\n\n".join([heading, table, *_notes(explanation)]) + "\n"


def _line(row: ExplainedRow, explanation: Explanation) -> dict[str, str]:
    times = {header: _time(row, name) for name, (header, _) in _TIMES.items()}
    if explanation.simulated:
        del times["alone warm us"]
    return {
        "node": ", ".join(map(str, row.profile.nodes)),
        "computes": computes(row.profile),
        "graph us": microseconds(row.graph_us),
        "best us": _NONE if row.best_us is None else microseconds(row.best_us),
        **times,
        "likely cause": "; ".join(row.causes) or _NONE,
    }


def _time(row: ExplainedRow, name: str) -> str:
    if name in row.failed:
        return "failed"
    us = _TIMES[name][1](row)
    # The time of naive loops says little of what fusing saves.
    mark = f" ({row.untuned} untuned)" if name == "unfused" and row.untuned else ""
    return _NONE if us is None else f"{microseconds(us)}{mark}"


def _notes(explanation: Explanation) -> list[str]:
    failures = [
        f"node {', '.join(map(str, row.profile.nodes))}: {_TIMES[name][0].removesuffix(' us')}: failed: {text}"
        for row in explanation.rows
        for name, text in row.failed.items()
    ]
    notes = ["\n".join(failures)] if failures else []
    if explanation.simulated:
        notes.append("on the simulated core a function alone is always counted with cold caches: there is no warm time")
    if any(row.untuned for row in explanation.rows):
        notes.append(
            "untuned parts are naive loops; where the spec also has this variant with fuse: false, tuned, its records "
            "are used"
        )
    return notes


def _record(row: ExplainedRow) -> dict[str, Any]:
    """What files say of a row; a time that failed is the text `failed: ...`."""
    found: dict[str, Any] = {name: time(row) for name, (_, time) in _TIMES.items()}
    found |= {name: f"failed: {text}" for name, text in row.failed.items()}
    return {
        "nodes": row.profile.nodes,
        "function": row.profile.function,
        "computes": computes(row.profile),
        "task": row.profile.task,
        "slower": row.profile.slower,
        "graph_us": row.graph_us,
        "best_us": row.best_us,
        **{f"{name}_us": value for name, value in found.items()},
        "untuned": row.untuned,
        "transforms": row.profile.transforms,
        "causes": row.causes,
    }


def _data(explanation: Explanation) -> dict[str, Any]:
    return {
        "format": 1,
        "variant": explanation.variant,
        "device": explanation.device,
        "simulated": explanation.simulated,
        "end_to_end_ms": explanation.end_to_end_ms,
        "top": explanation.top,
        "rows": [_record(row) for row in explanation.rows],
    }


_HEADERS = (
    "variant",
    "nodes",
    "function",
    "computes",
    "task",
    "slower",
    "graph_us",
    "best_us",
    *(f"{name}_us" for name in _TIMES),
    "untuned",
    "transforms",
    "causes",
)


def _csv(explanation: Explanation, header: bool = True) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, _HEADERS, lineterminator="\n")
    if header:
        writer.writeheader()
    for row in explanation.rows:
        cells = {name: _cell(value) for name, value in _record(row).items()}
        writer.writerow({"variant": explanation.variant, **cells})
    return buffer.getvalue()


def _cell(value: object) -> str:
    if isinstance(value, tuple):
        return "; ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)
