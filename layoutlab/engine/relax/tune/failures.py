"""Why candidates failed, kept beside the records: MetaSchedule's database keeps only that they did."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm

FAILURES_FILE = "failures.jsonl"


def append_failures(
    database: meta_schedule.database.Database, mod: tvm.IRModule, task: str, errors: Sequence[str]
) -> None:
    """Append one line for each error of a task's candidates; nothing for a database that is only in memory.

    Half a line that a kill left at the end becomes a line of its own, which `first_failures` leaves out.
    """
    path = _path(database)
    if path is None or not errors:
        return
    workload = workload_key(database, mod)
    lines = [json.dumps({"workload": workload, "task": task, "error": error}) + "\n" for error in errors]
    with open(path, "a+b") as file:
        torn = file.tell() and path.read_bytes()[-1:] != b"\n"
        file.write(("\n" * bool(torn) + "".join(lines)).encode())
        file.flush()
        os.fsync(file.fileno())


def first_failures(database: meta_schedule.database.Database) -> dict[str, str]:
    """The first error of each workload that had one, by `workload_key`. A torn last line is left out."""
    path = _path(database)
    if path is None or not path.exists():
        return {}
    found: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            failure = json.loads(line)
            found.setdefault(failure["workload"], failure["error"])
        except (ValueError, TypeError, KeyError):
            continue
    return found


def workload_key(database: meta_schedule.database.Database, mod: tvm.IRModule) -> str:
    """The structural hash of a module, as MetaSchedule's workload file has it; commits the workload when it is new."""
    return str(database.commit_workload(mod).as_json()[0])


def _path(database: meta_schedule.database.Database) -> Path | None:
    records = getattr(database, "path_tuning_record", None)
    return Path(records).with_name(FAILURES_FILE) if records else None
