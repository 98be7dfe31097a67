"""The forms of a profile: text, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from tabulate import tabulate

from layoutlab.engine.provenance import Operator
from layoutlab.report.files import write_texts
from layoutlab.report.peaks import BUSY
from layoutlab.report.profile_data import SLOWER, SLOWER_SHARE, Profile, ProfileRow
from layoutlab.roofline.peaks import Peaks

_NONE = "-"
_NO_OPS = "layout"
# Fields of a profile that files give in another form.
_APART = ("operators", "homes", "removed", "rows", "raw")
_SIMULATED = "simulated "


def write_profile(profile: Profile, folder: Path) -> None:
    """Write profile.<variant>.csv and profile.<variant>.json. Raises StoreError as `write_texts` does."""
    name = f"profile.{profile.variant}"
    write_texts({f"{name}.csv": profile_csv(profile), f"{name}.json": profile_json(profile)}, folder)


def profile_text(profile: Profile) -> str:
    """One variant's profile as text: the functions by time, their sum by type of operator, and what has no function."""
    blocks = [_heading(profile), _functions(profile), _by_type(profile), *_notes(profile)]
    return "\n\n".join(blocks) + "\n"


def profiles_text(profiles: Sequence[Profile], form: Literal["text", "csv", "json"]) -> str:
    """The profiles of several variants in one form."""
    if form == "text":
        return "\n\n".join(map(profile_text, profiles))
    if form == "json":
        return json.dumps({profile.variant: _data(profile) for profile in profiles}, indent=1) + "\n"
    return "".join(profile_csv(profile, header=at == 0) for at, profile in enumerate(profiles))


def profile_json(profile: Profile) -> str:
    """Everything, samples included; `operators` with the node of the function that computes each."""
    return json.dumps(_data(profile), indent=1) + "\n"


def _data(profile: Profile) -> dict[str, Any]:
    operators = [
        {**asdict(op), "node": profile.homes.get(op.index), "removed": profile.removed.get(op.index)}
        for op in profile.operators
    ]
    return {
        "format": 1,
        **{key: value for key, value in asdict(profile).items() if key not in _APART},
        "functions_ms": profile.functions_ms,
        "remainder_ms": profile.remainder_ms,
        "bounds_ms": profile.bounds_ms,
        "rows": [_record(row) for row in profile.rows],
        "operators": operators,
        "raw": profile.raw,
    }


def profile_csv(profile: Profile, header: bool = True) -> str:
    """One line for each function, longest first, then the remainder and the end-to-end time."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, ("variant", *_FIELDS), lineterminator="\n", restval="")
    if header:
        writer.writeheader()
    for row in profile.rows:
        cells = {name: _cell(name, value) for name, value in _record(row).items()}
        writer.writerow({"variant": profile.variant, **cells})
    for name, ms in (("remainder", profile.remainder_ms), ("end to end", profile.end_to_end_ms)):
        cells = {"function": name, "time_ms": f"{ms:.6g}", "share": f"{ms / profile.end_to_end_ms:.4f}"}
        writer.writerow({"variant": profile.variant, **cells})
    return buffer.getvalue()


# What files say of each row: lists with semicolons in CSV, shapes with x, times and rates with six digits.
_FIELDS: dict[str, Callable[[ProfileRow], object]] = {
    "nodes": lambda row: row.nodes,
    "function": lambda row: row.function,
    "calls": lambda row: row.calls,
    "time_ms": lambda row: row.time_ms,
    "share": lambda row: row.share,
    "ops": lambda row: [_op(op) for op in row.ops],
    "parts": lambda row: [_op(op) for op in row.parts],
    "transforms": lambda row: row.transforms,
    "shape": lambda row: row.shape,
    "dtype": lambda row: row.dtype,
    "layout": lambda row: row.layout,
    "flop": lambda row: row.flop,
    "gflops": lambda row: row.gflops,
    "bytes": lambda row: row.bytes,
    "gigabytes_per_s": lambda row: row.gigabytes_per_s,
    "intensity": lambda row: row.intensity,
    "bound_us": lambda row: row.bound_us,
    "of_limit": lambda row: row.of_limit,
    "binds": lambda row: row.binds,
    "task": lambda row: row.task,
    "best_us": lambda row: row.best_us,
    "ratio": lambda row: row.ratio,
    "slower": lambda row: row.slower,
}


def _record(row: ProfileRow) -> dict[str, object]:
    return {name: value(row) for name, value in _FIELDS.items()}


def _cell(name: str, value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ("x" if name == "shape" else "; ").join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.4f}" if name in ("share", "of_limit") else f"{value:.6g}"
    return "" if value is None else str(value)


def _heading(profile: Profile) -> str:
    word = _SIMULATED if profile.simulated else ""
    rate = profile.flop / profile.end_to_end_ms / 1e6
    lines = [
        f"{profile.variant}: {profile.end_to_end_ms:.3f} {word}ms end to end, {profile.flop / 1e6:.1f} MFLOP, "
        f"{rate:.1f} GFLOP/s, on {profile.device}"
    ]
    if profile.instrumented_ms is not None:
        lines.append(
            f"medians of {profile.inferences} inferences; another {profile.inferences} with each function timed took "
            f"{profile.instrumented_ms:.3f} ms"
        )
    if profile.peaks is not None:
        lines.append(_limits(profile, profile.peaks))
    return "\n".join(lines)


def _limits(profile: Profile, peaks: Peaks) -> str:
    rates = [stream.gigabytes_per_s for stream in peaks.streams]
    low, high = f"{min(rates):.1f}", f"{max(rates):.1f}"
    assert profile.bounds_ms is not None
    return (
        f"by this device's peaks ({'measured' if peaks.measured else 'stated'}: {peaks.gflops:.1f} GFLOP/s, "
        f"{low if low == high else f'{low} to {high}'} GB/s) the functions take at least {profile.bounds_ms:.3f} ms, "
        f"{profile.bounds_ms / profile.end_to_end_ms:.0%} of this"
    )


# A column -> its cell.
_COLUMNS: dict[str, Callable[[ProfileRow], str]] = {
    "node": lambda row: _nodes(row.nodes),
    "calls": lambda row: str(row.calls),
    "computes": lambda row: computes(row),
    "output": lambda row: _output(row),
    "us": lambda row: f"{1e3 * row.time_ms:.1f}",
    "share": lambda row: f"{100 * row.share:.1f} %",
    "MFLOP": lambda row: f"{row.flop / 1e6:.2f}",
    "GFLOP/s": lambda row: _number(row.gflops),
    "KB": lambda row: f"{row.bytes / 1e3:.0f}",
    "GB/s": lambda row: _number(row.gigabytes_per_s),
    "bound us": lambda row: _NONE if row.bound_us is None else f"{row.bound_us:.2f}",
    "of limit": lambda row: _percent(row.of_limit),
    "binds": lambda row: row.binds or _NONE,
    "best us": lambda row: _NONE if row.best_us is None else f"{row.best_us:.1f}",
    "real/best": lambda row: _NONE if row.ratio is None else f"{row.ratio:.2f}" + (" SLOWER" if row.slower else ""),
    "function": lambda row: row.function,
}


def _functions(profile: Profile) -> str:
    # Where each call is a row of its own there is nothing to count.
    left_out = () if profile.simulated else ("calls",)
    if profile.peaks is None:
        left_out = (*left_out, "bound us", "of limit", "binds")
    columns = {header: cell for header, cell in _COLUMNS.items() if header not in left_out}
    rows = [{header: cell(row) for header, cell in columns.items()} for row in profile.rows]
    sums = [
        ("all functions", profile.functions_ms),
        ("remainder", profile.remainder_ms),
        ("end to end", profile.end_to_end_ms),
    ]
    rows += [
        {"node": "", "computes": name, "us": f"{1e3 * ms:.1f}", "share": f"{100 * ms / profile.end_to_end_ms:.1f} %"}
        for name, ms in sums
    ]
    if profile.bounds_ms is not None:
        for row, ms in ((rows[-3], profile.functions_ms), (rows[-1], profile.end_to_end_ms)):
            row |= {"bound us": f"{1e3 * profile.bounds_ms:.2f}", "of limit": _percent(profile.bounds_ms / ms)}
    return _table([{header: row.get(header, "") for header in columns} for row in rows])


def _by_type(profile: Profile) -> str:
    """What each type of operator takes: a function counts for the operator in it that computes most."""
    groups: dict[str, list[ProfileRow]] = defaultdict(list)
    for row in profile.rows:
        groups[main_type(row)].append(row)
    ordered = sorted(groups.items(), key=lambda item: -sum(row.time_ms for row in item[1]))
    return _table([_type_row(name, rows, profile) for name, rows in ordered])


def _type_row(name: str, rows: Sequence[ProfileRow], profile: Profile) -> dict[str, str]:
    ms, flop = sum(row.time_ms for row in rows), sum(row.flop for row in rows)
    return {
        "type": name,
        "calls": str(sum(row.calls for row in rows)),
        "ms": f"{ms:.3f}",
        "share": f"{100 * ms / profile.end_to_end_ms:.1f} %",
        "MFLOP": f"{flop / 1e6:.2f}",
        "GFLOP/s": _number(flop / ms / 1e6 if flop and ms else None),
    }


def main_type(row: ProfileRow) -> str:
    """The type of the operator in a function that computes most, or what the function is for if it computes none."""
    if row.ops:
        return max(row.ops, key=lambda op: op.flop).type
    return f"part of {row.parts[0].type}" if row.parts else _NO_OPS


def _notes(profile: Profile) -> list[str]:
    notes = []
    recorded = [row for row in profile.rows if row.best_us is not None]
    if recorded:
        best_ms = sum(row.calls * row.best_us for row in recorded if row.best_us is not None) / 1e3
        notes.append(
            f"functions with a tuning record take {sum(row.time_ms for row in recorded):.3f} ms here; "
            f"their best times there, each alone, sum to {best_ms:.3f} ms"
        )
    if profile.busy:
        notes.append(
            "BUSY: something else ran on this machine: an inference was interrupted for "
            f"{profile.interrupted_ms:.3f} ms, which are in the end-to-end time and in the remainder; "
            "profile again on a quiet machine"
        )
    if profile.peaks is not None and profile.peaks.busy:
        notes.append(BUSY)
    slower = [row for row in profile.rows if row.slower]
    if slower:
        names = ", ".join(f"node {_nodes(row.nodes)}" for row in slower)
        notes.append(
            f"SLOWER: {names}: a call takes more than {SLOWER} times its best time in the tuning records, and that "
            f"costs more than {SLOWER_SHARE:.0%} of an inference"
        )
    by_reason: dict[str, list[Operator]] = defaultdict(list)
    for op in profile.operators:
        if op.index in profile.removed:
            by_reason[profile.removed[op.index]].append(op)
    notes += [f"in no function: {', '.join(map(_op, ops))}: {reason}" for reason, ops in by_reason.items()]
    return notes


def computes(row: ProfileRow) -> str:
    """The operators by number and type, parts in brackets, and the transforms."""
    parts = [*map(_op, row.ops), *(f"({_op(op)})" for op in row.parts), *row.transforms]
    return ", ".join(parts) or _NONE


def _op(op: Operator) -> str:
    return f"{op.index} {op.type}" + (f" {op.window}" if op.window else "")


def _nodes(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes))


def _output(row: ProfileRow) -> str:
    shape = "x".join(map(str, row.shape))
    return f"{shape} {row.layout}" if row.layout else shape


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:.0f} %"


def _number(value: float | None) -> str:
    return _NONE if value is None else f"{value:.1f}"


def _table(rows: Sequence[dict[str, str]]) -> str:
    if not rows:
        return ""
    left = ("computes", "output", "function", "type")
    align = ["left" if name in left else "right" for name in rows[0]]
    return tabulate(rows, headers="keys", tablefmt="simple", disable_numparse=True, colalign=align)
