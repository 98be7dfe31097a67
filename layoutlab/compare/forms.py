"""Comparisons of runs as text, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tabulate import tabulate

from layoutlab.compare.across import Change, SpecsTable, TimeTable
from layoutlab.compare.models import ModelsRow, ModelsTable
from layoutlab.compare.results import ResultRow
from layoutlab.measure.stats import Ratio
from layoutlab.report.markdown import plain
from layoutlab.report.pairs import pairs_table, ratio_text

_NONE = "-"


def comparison_text(found: SpecsTable | TimeTable | ModelsTable, form: str) -> str:
    """In the form `text`, `md`, `csv` or `json`."""
    if form == "json":
        return json.dumps(_data(found), indent=1, allow_nan=False) + "\n"
    records = _records(found)
    if form == "csv":
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(records[0])
        writer.writerows(record.values() for record in records)
        return buffer.getvalue()
    return _page(found, "github" if form == "md" else "simple")


def _page(found: SpecsTable | TimeTable | ModelsTable, form: str) -> str:
    bullet = "- " if form == "github" else ""
    if isinstance(found, ModelsTable):
        parts = [_table([_models_cells(found, variant) for variant in found.variants], form)]
    elif isinstance(found, SpecsTable):
        parts = [_table([_specs_cells(label, row, found.simulated) for label, row in found.rows], form)]
        pairs = pairs_table(found.pairs, form)
        parts += [pairs] if pairs else []
    else:
        heading = f"{found.spec}: from {found.then.path} to {found.now.path}"
        parts = [f"# {heading}" if form == "github" else heading]
        parts.append(_table([_change_cells(change) for change in found.changes], form))
    if found.notes:
        shown = plain if form == "github" else str
        parts.append("\n".join(f"{bullet}{shown(note)}" for note in found.notes))
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[dict[str, str]], form: str) -> str:
    if form == "github":
        rows = [{key: plain(cell) for key, cell in row.items()} for row in rows]
    align = ["left", *["right"] * (len(rows[0]) - 2), "left"]
    return tabulate(rows, headers="keys", tablefmt=form, disable_numparse=True, colalign=align)


def _specs_cells(label: str, row: ResultRow, simulated: bool) -> dict[str, str]:
    return {
        "variant": label,
        "spec": row.result.spec,
        "simulated ms" if simulated else "ms (MAD)": _ms(row),
        "x TFLite" if simulated else "x TFLite [95 %]": ratio_text(row.to_tflite),
        "verdict": _verdict(row),
        "flags": ", ".join(row.flags) or _NONE,
    }


def _models_cells(found: ModelsTable, variant: ModelsRow) -> dict[str, str]:
    """Each model's ratio to TFLite with its interval; `!` marks one that is unstable."""
    cells = {"variant": variant.variant}
    for model, row in zip(found.models, variant.rows, strict=True):
        ratio = row.to_tflite if row else None
        cells[f"{model}, x TFLite"] = ratio_text(ratio) + (" !" if ratio and ratio.verdict == "unstable" else "")
    return cells | {"geometric mean": f"{variant.mean:.2f}" if variant.mean is not None else _NONE}


def _verdict(row: ResultRow) -> str:
    if row.failure:
        return f"failed: {row.data['failure']['stage']}"
    return row.to_tflite.verdict if row.to_tflite else "baseline"


def _ms(row: ResultRow | None) -> str:
    if row is None or row.ms is None:
        return _NONE
    return f"{row.ms:.3f} ({row.latency.mad_ms:.3f})" if row.latency else f"{row.ms:.3f}"


def _change_cells(change: Change) -> dict[str, str]:
    then, now = change.then, change.now
    is_now, was = (row.flags if row else () for row in (now, then))
    flags = [*is_now, *(f"then {flag}" for flag in was if flag not in is_now)]
    return {
        "variant": change.row,
        "then ms": _ms(then),
        "now ms": _ms(now),
        "now / then": ratio_text(change.ratio),
        "verdict": change.verdict,
        "x TFLite then": ratio_text(then.to_tflite if then else None),
        "x TFLite now": ratio_text(now.to_tflite if now else None),
        "flags": ", ".join(flags) or _NONE,
    }


def _records(found: SpecsTable | TimeTable | ModelsTable) -> list[dict[str, Any]]:
    if isinstance(found, ModelsTable):
        return [
            {
                "variant": variant.variant,
                "model": model,
                "ms": row and row.ms,
                **_ratio("ratio_to_tflite", row.to_tflite if row else None),
                "verdict": _verdict(row) if row else None,
                "geometric_mean": variant.mean,
            }
            for variant in found.variants
            for model, row in zip(found.models, variant.rows, strict=True)
        ]
    if isinstance(found, TimeTable):
        return [
            {
                "variant": change.row,
                "then_ms": change.then and change.then.ms,
                "now_ms": change.now and change.now.ms,
                **_ratio("ratio", change.ratio),
                "verdict": change.verdict,
            }
            for change in found.changes
        ]
    return [
        {
            "variant": label,
            "spec": row.result.spec,
            "ms": row.ms,
            "mad_ms": row.latency and row.latency.mad_ms,
            **_ratio("ratio_to_tflite", row.to_tflite),
            "verdict": _verdict(row),
            "flags": " ".join(flag.replace(" ", "-") for flag in row.flags),
        }
        for label, row in found.rows
    ]


def _ratio(name: str, ratio: Ratio | None) -> dict[str, float | None]:
    if ratio is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    return {name: ratio.value, f"{name}_low": ratio.low, f"{name}_high": ratio.high}


def _data(found: SpecsTable | TimeTable | ModelsTable) -> dict[str, Any]:
    data: dict[str, Any] = {"format": 1, "rows": _records(found), "notes": list(found.notes)}
    if isinstance(found, SpecsTable):
        return {**data, "pairs": [asdict(pair) for pair in found.pairs]}
    if isinstance(found, ModelsTable):
        return data
    return {**data, "spec": found.spec, "then": str(found.then.path), "now": str(found.now.path)}
