"""What tuning covered, for every variant and task: coverage.csv, the notes under the table, and a table of tasks."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from tabulate import tabulate

from layoutlab.engine.base import EVERY_FAILED, NOT_REACHED, NOT_TUNED, ONE_POINT, SKIPPED, TaskCoverage
from layoutlab.report.comparison import Comparison

_FIELDS = (
    "variant",
    "index",
    "name",
    "ops",
    "kind",
    "layout",
    "space",
    "flop",
    "trials",
    "failed",
    "best_us",
    "weighted_us",
    "share",
    "gflops",
    "untuned_because",
    "first_failure",
    "hit",
)
# How the notes name the reasons for having no record; the engine's reasons begin with the left side.
_COUNTED_AS = {
    NOT_TUNED: "not tuned",
    ONE_POINT: "of one point",
    SKIPPED: "skipped",
    EVERY_FAILED: "without a valid candidate",
    NOT_REACHED: "without a trial",
}
# More names than this in a note are only counted: coverage.csv has them all.
_NAMES_SHOWN = 5
_NONE = "-"


def coverage_csv(comparison: Comparison) -> str:
    """One line for each variant and task, in the order of the spec and of execution; what is unknown is empty."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, _FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(coverage_records(comparison))
    return buffer.getvalue()


def coverage_records(comparison: Comparison) -> list[dict[str, Any]]:
    """The lines of coverage.csv.

    `weighted_us` is the best time of one call times the calls, and `share` its part of their sum over the tasks of the
    variant that have a time: candidates are run alone, so that sum is not the latency of the network.
    """
    return [record for name, tasks in comparison.coverage.items() for record in _records(name, tasks)]


def _records(variant: str, tasks: Sequence[TaskCoverage]) -> list[dict[str, Any]]:
    total_us = _sum_us(tasks)
    found = []
    for task in tasks:
        weighted_us = None if task.best_us is None else task.ops * task.best_us
        values = {name: getattr(task, name) for name in _FIELDS if hasattr(task, name)}
        values |= {
            "variant": variant,
            "weighted_us": weighted_us,
            "share": None if weighted_us is None else weighted_us / total_us,
            "gflops": task.flop / task.best_us / 1e3 if task.flop is not None and task.best_us else None,
        }
        found.append({name: values[name] for name in _FIELDS})
    return found


def _sum_us(tasks: Sequence[TaskCoverage]) -> float:
    return sum(task.ops * task.best_us for task in tasks if task.best_us is not None)


def coverage_notes(comparison: Comparison) -> list[str]:
    """For each variant one line of counts, and one for each reason why tasks have no record."""
    return [line for name, tasks in comparison.coverage.items() if tasks for line in _notes(name, tasks)]


def _notes(variant: str, tasks: Sequence[TaskCoverage]) -> list[str]:
    untuned: dict[str, list[TaskCoverage]] = {}
    for task in tasks:
        if task.best_us is None:
            untuned.setdefault(task.untuned_because or "reason unknown", []).append(task)
    if list(untuned) == [NOT_TUNED]:
        return [f"{variant}: {_count(len(tasks), 'task')}, {NOT_TUNED}"]
    tuned = [task for task in tasks if task.best_us is not None]
    parts = [_count(len(tasks), "task"), f"{len(tuned)} tuned{_part_of_flop(tuned, tasks)}"]
    for reason, label in _COUNTED_AS.items():
        if number := sum(len(found) for why, found in untuned.items() if why.startswith(reason)):
            parts.append(f"{number} {label}")
    trials, failed = sum(task.trials for task in tasks), sum(task.failed for task in tasks)
    lines = [f"{variant}: {', '.join(parts)}; {_count(trials, 'trial')}, {failed:,} failed"]
    return lines + [f"{variant}, {_listed(found)}: {reason}" for reason, found in untuned.items()]


def _part_of_flop(tuned: Sequence[TaskCoverage], tasks: Sequence[TaskCoverage]) -> str:
    """Operations are known of every task, times of the tuned ones only."""
    if any(task.flop is None for task in tasks):
        return ""
    total = sum(task.ops * (task.flop or 0) for task in tasks)
    part = sum(task.ops * (task.flop or 0) for task in tuned)
    return f" ({100 * part / total:.1f} % of the FLOP)" if total else ""


def _listed(tasks: Sequence[TaskCoverage]) -> str:
    names = [task.name for task in tasks[:_NAMES_SHOWN]]
    more = len(tasks) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def tasks_text(comparison: Comparison) -> str:
    """A table of the tasks of each variant, most of the time first, with the columns that MetaSchedule shows."""
    parts = [f"{comparison.name}: what tuning covered", ""]
    for name, tasks in comparison.coverage.items():
        if tasks:
            parts += [_tasks_table(name, tasks), ""]
    unit = "simulated us" if comparison.simulated else "us"
    parts.append(
        f"Times are the best of the candidates, run alone, in {unit}; their weighted sum is not the latency of the "
        "network. FLOP are TVM's estimate."
    )
    return "\n".join(parts) + "\n"


def _tasks_table(variant: str, tasks: Sequence[TaskCoverage]) -> str:
    records = sorted(_records(variant, tasks), key=lambda record: (-(record["share"] or 0), record["index"]))
    rows = [_cells(record) for record in records]
    align = ["right", "left", *["right"] * 6, "left", "left", "right", "right", "left"]
    table = tabulate(rows, headers="keys", tablefmt="simple", disable_numparse=True, colalign=align)
    total = f"{_sum_us(tasks):.1f}" if any(task.best_us is not None for task in tasks) else "unknown"
    return f"{variant}\n{table}\nweighted sum: {total} us, {_count(sum(task.trials for task in tasks), 'trial')}"


def _cells(record: dict[str, Any]) -> dict[str, str]:
    return {
        "ID": str(record["index"]),
        "Name": record["name"],
        "FLOP": _number(record["flop"], "{:.0f}"),
        "Weight": str(record["ops"]),
        "Speed (GFLOPS)": _number(record["gflops"], "{:.2f}"),
        "Latency (us)": _number(record["best_us"], "{:.2f}"),
        "Weighted Latency (us)": _number(record["weighted_us"], "{:.2f}"),
        "Trials": str(record["trials"]),
        "Kind": record["kind"] or _NONE,
        "Layout": record["layout"] or _NONE,
        "Space": _points(record["space"]),
        "Failed": str(record["failed"]),
        "Untuned because": record["untuned_because"] or _NONE,
    }


def _number(value: float | None, form: str) -> str:
    return _NONE if value is None else form.format(value)


def _points(space: int | None) -> str:
    """Whole up to a million; spaces can be larger than any float."""
    if space is None:
        return _NONE
    return f"{space:,}" if space < 10**6 else f"{Decimal(space):.1e}"
