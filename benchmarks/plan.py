"""What the processes of the tuning benchmark tell each other.

Nothing of layoutlab is imported here: the process of the stock tuner reads this too, and must find TVM as it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

OURS, STOCK = "layoutlab", "stock"


@dataclass(frozen=True, kw_only=True)
class Task:
    """One tuning task: its name, the ops of the network it serves, and the operations of one call."""

    name: str
    ops: int
    flop: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What both tuners tune, for which target (TVM's dict form), with how many trials in all and which seed."""

    model: str
    target: dict[str, Any]
    tasks: tuple[Task, ...]
    trials: int
    seed: int

    def write(self, folder: Path) -> None:
        """Keep it in the benchmark's folder."""
        (folder / "plan.json").write_text(json.dumps(asdict(self), indent=1))

    @staticmethod
    def read(folder: Path) -> Plan:
        """The plan of the benchmark in `folder`."""
        data = json.loads((folder / "plan.json").read_text())
        return Plan(**{**data, "tasks": tuple(Task(**task) for task in data["tasks"])})


def choose(tasks: Sequence[Task], wanted: str) -> list[Task]:
    """`wanted` is a number, of the tasks with the most arithmetic in the whole network, or names between commas.

    The order in which tasks are extracted is that of a hash map, and so means nothing. Raises SystemExit for a name
    that is not there.
    """
    by_work = sorted(tasks, key=lambda task: (-task.flop * task.ops, task.name))
    if wanted.isdigit() and int(wanted):
        return by_work[: int(wanted)]
    known = {task.name: task for task in by_work}
    absent = [name for name in wanted.split(",") if name not in known]
    if absent:
        raise SystemExit(f"the model has no task {', '.join(absent)}; it has {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(wanted.split(","))]


def modules_path(folder: Path) -> Path:
    """TVM's JSON of two modules for each task: as it was extracted, and as it is tuned."""
    return folder / "modules.json"


def database_paths(folder: Path, tuner: str) -> tuple[Path, Path]:
    """The files of workloads and of records, in the form and with the names each tuner gives them."""
    if tuner == OURS:
        return folder / tuner / "workloads.jsonl", folder / tuner / "records.jsonl"
    return folder / tuner / "database_workload.json", folder / tuner / "database_tuning_record.json"
