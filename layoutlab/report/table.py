"""The comparison as a table: for the terminal, and as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from tabulate import tabulate

from layoutlab.device.kryo.constants import CLOCK_GHZ, PENALTY
from layoutlab.engine.relay.notes import engine_notes
from layoutlab.records.identity import Difference
from layoutlab.report.comparison import Comparison, Row, Simulated
from layoutlab.report.coverage import coverage_notes, coverage_records
from layoutlab.report.markdown import plain
from layoutlab.report.pairs import pairs_table, ratio_text, spread_table
from layoutlab.report.rounds import conditions_text, rounds_notes, rounds_record
from layoutlab.report.search import search_text
from layoutlab.spec.target import format_target

# Unknown, or does not apply.
_NONE = "-"
_WORDS = ("variant", "conv layouts", "flags")
# The first of these goes first where a terminal is too narrow for all columns.
_LEFT_OUT_FIRST = (
    "trials",
    "kcycles",
    "compute",
    "memory",
    "vs untuned",
    "conv layouts",
    "transforms",
    "tuned",
    "outputs",
    "flags",
)


def terminal_table(comparison: Comparison, width: int | None = None) -> str:
    """The table and what has to be said with it, as plain text.

    `width` is that of a terminal, in characters: columns that do not fit are left out, which is said.
    """
    table, left_out = _fitting(table_cells(comparison), width)
    pairs = pairs_table(comparison.pairs, "simple")
    between = [pairs, ""] if pairs else []
    narrow = [f"left out to fit {width} characters: {', '.join(left_out)} (all in table.md)"] if left_out else []
    lines = [f"{comparison.name}: {_model(comparison)}", "", table, *narrow, "", *between, *_notes(comparison), ""]
    return "\n".join(lines)


def _fitting(cells: list[dict[str, str]], width: int | None) -> tuple[str, list[str]]:
    """The table with as many columns as fit, and the names of the others."""
    left_out: list[str] = []
    for name in ("", *(name for name in _LEFT_OUT_FIRST if name in cells[0])):
        left_out += [name] if name else []
        table = _tabulate([{key: cell for key, cell in row.items() if key not in left_out} for row in cells], "simple")
        if width is None or max(map(len, table.splitlines())) <= width:
            break
    return table, left_out


def markdown_table(comparison: Comparison) -> str:
    """A page of its own: title, table, notes, and how to repeat it."""
    lines = [f"# {plain(comparison.name)}", ""]
    if comparison.description:
        lines += [plain(comparison.description.strip()), ""]
    lines += [f"Model: {plain(_model(comparison))}", "", _tabulate(table_cells(comparison), "github"), ""]
    lines += [f"- {plain(note)}" for note in _notes(comparison)]
    pairs = pairs_table(comparison.pairs, "github")
    if pairs:
        lines += ["", "## Between variants", "", pairs]
    latencies = {row.name: row.latency for row in comparison.rows if row.latency}
    if latencies:
        lines += ["", "## Spread", "", spread_table(latencies, "github")]
    lines += ["", "## To repeat it", ""]
    lines += [f"- {plain(line)}" for line in _footer(comparison)]
    return "\n".join(lines) + "\n"


def csv_table(comparison: Comparison) -> str:
    """One line per row; numbers unrounded where the other forms round."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    records = [_record(row) for row in comparison.rows]
    writer.writerow(records[0])
    writer.writerows(record.values() for record in records)
    return buffer.getvalue()


def json_table(comparison: Comparison) -> str:
    """Everything, samples included; `coverage` as in coverage.csv."""
    return json.dumps(json_data(comparison), indent=1, allow_nan=False) + "\n"


def json_data(comparison: Comparison) -> dict[str, Any]:
    """What `json_table` writes."""
    return {**comparison.to_json(), "coverage": coverage_records(comparison)}


def table_cells(comparison: Comparison) -> list[dict[str, str]]:
    """The cells of each row by their headings."""
    untuned = any(row.speedup is not None for row in comparison.rows)
    return [_cells(row, comparison.simulated, untuned) for row in comparison.rows]


def notes(comparison: Comparison) -> list[str]:
    """What the reader of the figures has to know."""
    return _notes(comparison)


def how_to_repeat(comparison: Comparison) -> list[str]:
    """What the figures depend on: hashes, versions, settings and the state of the machine."""
    return _footer(comparison)


def _tabulate(rows: list[dict[str, str]], form: str) -> str:
    # Numbers are formatted here; tabulate would read "1e3" or "39/39" its own way.
    if form == "github":
        rows = [{key: cell.replace("|", "\\|") for key, cell in row.items()} for row in rows]
    align = ["left" if name in _WORDS else "right" for name in rows[0]]
    return tabulate(rows, headers="keys", tablefmt=form, disable_numparse=True, colalign=align)


def _cells(row: Row, simulated: bool, untuned: bool) -> dict[str, str]:
    cells = {
        "variant": row.name,
        "conv layouts": _layouts(row),
        **(_simulated_cells(row) if simulated else _measured_cells(row)),
        "verdict": _verdict(row),
    }
    if untuned:
        cells["vs untuned"] = f"{row.speedup:.1f}x" if row.speedup else _NONE
    return cells | {
        "transforms": _transforms(row),
        "tuned": _tuned(row),
        "trials": _trials(row),
        "outputs": _outputs(row),
        "flags": ", ".join(row.flags) or _NONE,
    }


def _layouts(row: Row) -> str:
    if row.layouts is None:
        return _NONE
    return ", ".join(f"{count} {layout}" for layout, count in row.layouts.items()) or "no conv2d"


def _measured_cells(row: Row) -> dict[str, str]:
    found = row.latency
    return {
        "ms (MAD)": f"{found.median_ms:.3f} ({found.mad_ms:.3f})" if found else _NONE,
        "x TFLite [95 %]": ratio_text(row.ratio),
    }


def _simulated_cells(row: Row) -> dict[str, str]:
    found = row.simulated
    return {
        "simulated ms": f"{found.ms:.3f}" if found else _NONE,
        "kcycles": f"{found.kcycles:.0f}" if found else _NONE,
        "compute": f"{found.compute_kcycles:.0f}" if found else _NONE,
        "memory": f"{found.memory_kcycles:.0f}" if found else _NONE,
        "x TFLite": ratio_text(row.ratio),
    }


def _verdict(row: Row) -> str:
    if row.failure:
        return "wrong outputs" if row.failure.stage == "check" and row.check else f"failed: {row.failure.stage}"
    return row.ratio.verdict if row.ratio else "baseline"


def _transforms(row: Row) -> str:
    """Their number, and how many of them are reshapes that move nothing."""
    if row.transforms is None:
        return _NONE
    return f"{row.transforms} ({row.transforms_free} free)" if row.transforms_free else str(row.transforms)


def _tuned(row: Row) -> str:
    """Ops with a record of all, and how many have none because there is nothing to choose."""
    if row.ops is None:
        return _NONE
    return f"{row.ops_tuned}/{row.ops}" + (f" ({row.ops_one_point} of one point)" if row.ops_one_point else "")


def _trials(row: Row) -> str:
    if row.trials is None or not row.tuned:
        return _NONE
    return f"{row.trials}" + (f" ({row.trials_failed} failed)" if row.trials_failed else "")


def _outputs(row: Row) -> str:
    if row.check is None:
        return _NONE
    if not row.check.ok:
        return "WRONG"
    return f"ok ({row.check.max_abs:.0e})"


def _model(comparison: Comparison) -> str:
    return f"{comparison.run['model']}, {comparison.run['model_bytes'] / 1e6:.1f} MB"


def _notes(comparison: Comparison) -> list[str]:
    """What the reader of the figures has to know."""
    run = comparison.run
    notes = [
        f"{row.name}: {row.failure.stage} failed: {row.failure.cause}"
        + (f" (log: {row.failure.log})" if row.failure.log else "")
        for row in comparison.rows
        if row.failure
    ]
    notes += engine_notes(comparison.run.get("engines", {}))
    notes += coverage_notes(comparison)
    notes += [line for variant, found in comparison.records.items() for line in _sources(variant, found)]
    notes.append(f"device: {run['device_reason']}")
    notes.append(f"baseline: {comparison.baseline_runtime}")
    return notes + (_simulated_notes() if comparison.simulated else _measured_notes(comparison))


def _simulated_notes() -> list[str]:
    return [
        "simulated, not measured: one inference is run by qemu and counted exactly, block by block; a block costs "
        f"what llvm-mca says of Kryo (compute), and each L1 miss that the prefetcher does not foresee {PENALTY:g} "
        f"cycles (memory), at {CLOCK_GHZ} GHz; docs/kryo.md says how far to trust it",
        "the same figures come out of every run, so there is no spread; they are never to be ranked with measured ones",
    ]


def _measured_notes(comparison: Comparison) -> list[str]:
    measure = comparison.measure
    notes = [
        f"median of {measure['rounds']} rounds in fresh processes, rows interleaved, {measure['repeats']} samples of "
        f"at least {measure['min_repeat_ms']} ms each; intervals by bootstrap over rounds, "
        "ratios without the highest and lowest fifth of the rounds",
        *rounds_notes({row.name: row.rounds for row in comparison.rows if row.rounds}),
    ]
    if measure["rounds"] < 6:
        notes.append(f"only {measure['rounds']} rounds: for trying out, not for publication")
    return notes


def _footer(comparison: Comparison) -> list[str]:
    run, tuning, check = comparison.run, comparison.tuning, comparison.check
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    return [
        f"model sha256: {run['model_sha256']}" + (f", batch bound to {run['batch']}" if run.get("batch") else ""),
        f"target: {format_target(run['target'])}",
        f"device: {run['device']}, {run['threads']} thread{'s' if run['threads'] > 1 else ''}",
        f"versions: {versions}",
        f"tuning: {tuning['trials']} trials a variant, {search_text(tuning)}, "
        f"weights {'packed' if tuning['pack_weights'] else 'not packed'}, seed {tuning['seed']}",
        f"outputs: {check['inputs']} seeded inputs, tolerance {check['atol']:g} + {check['rtol']:g} x |TFLite|, "
        f"seed {check['seed']}",
        *([] if comparison.simulated else [conditions_text(comparison.conditions)]),
        *(f"hook of {variant}: file with sha256 {sha256}" for variant, sha256 in comparison.hooks.items()),
    ]


def _sources(variant: str, found: dict[str, Any]) -> list[str]:
    """Where records came from that were not all made in this run."""
    lines = []
    if origin := found.get("origin"):
        lines.append(f"records: {variant} from {origin['source']}")
    for lent in found.get("borrowed", ()):
        ops = f"{lent['ops']} op{'s' if lent['ops'] > 1 else ''}"
        differ = "; ".join(Difference(**item).text("here", "there") for item in lent["differences"])
        lines.append(f"borrowed: {ops} of {variant} from {lent['source']}, which differs in {differ or 'nothing'}")
    return lines


def functions_csv(comparison: Comparison) -> str:
    """One line for each function of each simulated variant; those of a variant sum to its row."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["variant", "function", "share", *_COST_FIELDS])
    for variant, functions in comparison.functions.items():
        for function in functions:
            costs = [f"{value:.12g}" for value in _cost_record(function.cost).values()]
            writer.writerow([variant, function.name, f"{function.share:.4f}", *costs])
    return buffer.getvalue()


_COST_FIELDS = (
    "simulated_ms",
    "kcycles",
    "compute_kcycles",
    "memory_kcycles",
    "instructions",
    "accesses",
    "l1_misses",
    "l1_nonsequential",
    "l2_misses",
)


def _cost_record(cost: Simulated | None) -> dict[str, float | None]:
    if cost is None:
        return dict.fromkeys(_COST_FIELDS)
    counted = {name: cost.counts[name] for name in _COST_FIELDS[4:]}
    own = (cost.ms, cost.kcycles, cost.compute_kcycles, cost.memory_kcycles)
    return {**dict(zip(_COST_FIELDS, own, strict=False)), **counted}


def _record(row: Row) -> dict[str, object]:
    latency, ratio, check = row.latency, row.ratio, row.check
    return {
        "variant": row.name,
        "verdict": _verdict(row),
        "median_ms": latency and latency.median_ms,
        "mad_ms": latency and latency.mad_ms,
        "min_ms": latency and latency.min_ms,
        "p5_ms": latency and latency.p5_ms,
        "p90_ms": latency and latency.p90_ms,
        "rounds": latency and latency.rounds,
        "samples": latency and latency.samples,
        **rounds_record(row.rounds),
        **_cost_record(row.simulated),
        "ratio_to_tflite": ratio and ratio.value,
        "ratio_low": ratio and ratio.low,
        "ratio_high": ratio and ratio.high,
        "speedup_over_untuned": row.speedup,
        "conv_layouts": None if row.layouts is None else _layouts(row),
        "layout_transforms": row.transforms,
        "layout_transforms_free": row.transforms_free,
        "layout_transform_bytes": row.transform_bytes,
        "ops": row.ops,
        "ops_tuned": row.ops_tuned,
        "ops_one_point": row.ops_one_point,
        "ops_borrowed": row.ops_borrowed,
        "trials": row.trials,
        "trials_failed": row.trials_failed,
        "outputs_ok": check and check.ok,
        "outputs_max_abs_diff": check and check.max_abs,
        "outputs_top1": check and f"{check.top1}/{check.sets}",
        "flags": " ".join(flag.replace(" ", "-") for flag in row.flags),
        "failure": row.failure and f"{row.failure.stage}: {row.failure.cause}",
    }
