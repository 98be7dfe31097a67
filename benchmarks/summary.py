"""The tuning benchmark's figures as data and as text. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tabulate import tabulate

from benchmarks.plan import OURS, STOCK, Task


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a tuner's process ended: after so many seconds, TVM's start included, and why too early, if so."""

    seconds: float
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a tuner found for one task.

    `recorded_us` is its best cost in its own records, `best_us` the same candidate measured again next to the other
    tuner's; both are None without a valid record.
    """

    tuner: str
    task: str
    valid: int
    failed: int
    recorded_us: float | None
    best_us: float | None


@dataclass(frozen=True, kw_only=True)
class Total:
    """One tuner over all tasks; `sum_us` is the sum over all ops of the tasks that both tuners tuned."""

    tuned: int
    valid: int
    failed: int
    seconds: float
    per_minute: float
    sum_us: float | None


def total(tuner: str, tasks: Sequence[Task], measured: Sequence[Measured], ending: Ending) -> Total:
    """Add up one tuner's figures."""
    own = [row for row in measured if row.tuner == tuner]
    valid = sum(row.valid for row in own)
    best_us = {row.task: row.best_us for row in own}
    common = [task for task in tasks if task.name in _tuned_by_both(measured)]
    return Total(
        tuned=sum(row.best_us is not None for row in own),
        valid=valid,
        failed=sum(row.failed for row in own),
        seconds=ending.seconds,
        per_minute=60 * valid / ending.seconds,
        sum_us=sum(task.ops * (best_us[task.name] or 0.0) for task in common) if common else None,
    )


def _tuned_by_both(measured: Sequence[Measured]) -> set[str]:
    names = [{row.task for row in measured if row.tuner == tuner and row.best_us} for tuner in (OURS, STOCK)]
    return names[0] & names[1]


def tables(
    tasks: Sequence[Task],
    measured: Sequence[Measured],
    endings: dict[str, Ending],
    failures: dict[str, dict[str, int]],
    machine: dict[str, str],
) -> str:
    """Both tables, what went wrong, and the machine, ready to print.

    `failures` says for each tuner how many trials failed for which reason.
    """
    ours, stock = (total(tuner, tasks, measured, endings[tuner]) for tuner in (OURS, STOCK))
    common = len(_tuned_by_both(measured))
    rows = [
        ("tasks tuned", f"{ours.tuned} of {len(tasks)}", f"{stock.tuned} of {len(tasks)}", "-"),
        _row("valid trials", ours.valid, stock.valid, ".0f"),
        _row("failed trials", ours.failed, stock.failed, ".0f"),
        _row("seconds", ours.seconds, stock.seconds, ".0f"),
        _row("valid trials per minute", ours.per_minute, stock.per_minute, ".1f"),
        _row(f"best costs of {_tasks(common)}, us", ours.sum_us, stock.sum_us, ".1f"),
    ]
    parts = [
        _table(["", "layoutlab", "stock MetaSchedule", "layoutlab / stock"], rows),
        _table(["task", "ops", "layoutlab us", "stock us", "layoutlab / stock"], _task_rows(tasks, measured)),
        "\n".join([*_notes(endings, failures), *(f"{name}: {value}" for name, value in machine.items())]),
    ]
    return "\n\n".join(parts) + "\n"


def _tasks(number: int) -> str:
    return f"{number} task" if number == 1 else f"{number} tasks"


def _task_rows(tasks: Sequence[Task], measured: Sequence[Measured]) -> list[tuple[str, ...]]:
    best_us = {(row.tuner, row.task): row.best_us for row in measured}
    return [
        (
            task.name,
            str(task.ops),
            *_row("", best_us.get((OURS, task.name)), best_us.get((STOCK, task.name)), ".1f")[1:],
        )
        for task in tasks
    ]


def _row(name: str, ours: float | None, stock: float | None, form: str) -> tuple[str, str, str, str]:
    """A line of figures; the ratio is "-" where there is none."""
    ratio = f"{ours / stock:.2f}" if ours is not None and stock else "-"
    return name, _figure(ours, form), _figure(stock, form), ratio


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    align = ("left", *["right"] * (len(headers) - 1))
    return str(tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=align))


def _notes(endings: dict[str, Ending], failures: dict[str, dict[str, int]]) -> list[str]:
    return [
        *(f"{tuner} did not finish: {ending.problem}" for tuner, ending in endings.items() if ending.problem),
        *(
            f"{tuner}: {number} failed with: {reason}"
            for tuner, reasons in failures.items()
            for reason, number in reasons.items()
        ),
        "seconds are those of the tuner's whole process; stock has its default settings (64 trials an iteration), and "
        "writes its records only when an iteration ends",
        "best costs are times of one call, each tuner's best candidates built again and measured in turns in one "
        "process, times the ops that a task serves",
    ]
