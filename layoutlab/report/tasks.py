"""The tuning tasks of a spec's variants, and what tuning some of them brought, as text."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from layoutlab.engine.base import TaskCoverage, TuneResult, from_json, to_json
from layoutlab.errors import StageError
from layoutlab.model.resolve import bind_model, resolve_model
from layoutlab.process import run_job
from layoutlab.progress import Progress, duration
from layoutlab.report.layouts import spec_target
from layoutlab.spec.load import LoadedSpec
from layoutlab.store import Store
from layoutlab.variants import compile_job, require_allowed, worker_environment

_NONE = "-"
# A column -> its cell. Times are of candidates measured alone.
_COLUMNS: dict[str, Callable[[TaskCoverage], str]] = {
    "task": lambda task: str(task.index),
    "name": lambda task: task.name,
    "kind": lambda task: task.kind or _NONE,
    "ops": lambda task: str(task.ops),
    "trials": lambda task: f"{task.trials}" + (f" ({task.failed} failed)" if task.failed else ""),
    "best us": lambda task: _us(task.best_us),
}
_ENDINGS = {
    "budget": "the budget is spent",
    "time limit": "the time limit is reached",
    "early stop": "stopped early, no task improved any more",
    "nothing left": "nothing is left to try",
}


def find_tasks(
    loaded: LoadedSpec, results: Path, allowed: Sequence[str], progress: Progress
) -> Iterator[tuple[str, list[TaskCoverage] | StageError]]:
    """For each variant its tasks, or why it has none; trials and best times are those of its last run, if any."""
    require_allowed(loaded, allowed)
    model = resolve_model(loaded, progress)
    with tempfile.TemporaryDirectory(prefix="layoutlab-") as scratch, contextlib.ExitStack() as stack:
        log = Path(scratch) / "tasks.log"
        model = bind_model(model, loaded.spec.model.batch, Path(scratch))
        runs = results / "runs" / loaded.spec.name
        store = stack.enter_context(Store(runs)) if (runs / "events.jsonl").exists() else None
        # MetaSchedule's rules need to know how many cores share a loop.
        target = {"num-cores": loaded.spec.threads, **(_last_target(store) or spec_target(loaded, log))}
        for variant in loaded.spec.variants:
            progress.show(f"{variant.name}: tasks")
            folder = _last_folder(store, variant.name) or Path(scratch) / variant.name
            job = compile_job(loaded, variant, model.path, target, folder, allowed)
            try:
                value = run_job("list_tasks", {"job": to_json(job)}, log=log, environment=worker_environment(loaded))
            except StageError as error:
                # The log goes with the folder: the cause has to say it all.
                yield variant.name, StageError(error.stage, error.cause)
            else:
                yield variant.name, [from_json(TaskCoverage, task) for task in value]


def _last_target(store: Store | None) -> dict[str, Any] | None:
    begun = [event for event in store.events if event["kind"] in ("run", "tune")] if store else []
    return begun[-1]["target"] if begun else None


def _last_folder(store: Store | None, variant: str) -> Path | None:
    """The folder that holds the variant's records."""
    if store is None:
        return None
    folders = [
        event.get("folder") or f"{variant}-{event['key']}"
        for event in store.events
        if event["kind"] in ("uses", "tune_begins") and event["variant"] == variant
    ]
    return store.folder / folders[-1] if folders else None


def tasks_text(name: str, found: Sequence[TaskCoverage] | StageError) -> str:
    """One variant's tasks as text."""
    if isinstance(found, StageError):
        return f"{name}: fails at {found.stage}: {found.cause}\n"
    ops = sum(task.ops for task in found)
    rows = [{header: cell(task) for header, cell in _COLUMNS.items()} for task in found]
    return "\n".join([f"{name}: {_count(len(found), 'task')}, {_count(ops, 'op')}", "", _table(rows), ""])


def tuned_text(name: str, result: TuneResult, additional: bool) -> str:
    """What tuning brought for each chosen task; `additional`: its trials came on top of the spec's budget."""
    rows = [
        {
            "task": str(index),
            "name": result.after[index].name,
            "ops": str(result.after[index].ops),
            "trials": f"{result.before[index].trials} -> {result.after[index].trials}",
            "best us": f"{_us(result.before[index].best_us)} -> {_us(result.after[index].best_us)}",
        }
        for index in result.chosen
    ]
    trials, took = _count(result.trials, "trial"), duration(result.tune_s)
    lines = [f"{name}: {trials} in {took}: {_ENDINGS[result.ended]}", "", _table(rows), ""]
    if additional and result.trials:
        lines += [f"These {trials} come on top of the spec's budget, and its table counts them.", ""]
    return "\n".join(lines)


def _table(rows: Sequence[dict[str, str]]) -> str:
    return tabulate(rows, headers="keys", tablefmt="simple", disable_numparse=True)


def _us(us: float | None) -> str:
    return _NONE if us is None else f"{us:.2f}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
