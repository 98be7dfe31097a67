"""What came of one operator alone, as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from tabulate import tabulate

from layoutlab.alone.run import AloneVariant, OpResult
from layoutlab.engine.provenance import Operator
from layoutlab.records.adopt import AdoptedTask
from layoutlab.report.table import terminal_table

_NONE = "-"


def op_text(result: OpResult) -> str:
    """What was cut out, the table of it, and each variant's times alone, in the network, and in the records."""
    return "\n".join([_heading(result), "", terminal_table(result.comparison), _times(result), "", *_notes(result), ""])


def op_json(result: OpResult) -> str:
    """Everything."""
    data = {
        "format": 1,
        **asdict(result.request),
        "ops": [asdict(op) for op in result.ops],
        "fused_by": result.fused_by,
        "model": str(result.model),
        "variants": [asdict(found) for found in result.variants],
        "written": result.written,
        "table": result.comparison.to_json(),
    }
    return json.dumps(data, indent=1) + "\n"


def _heading(result: OpResult) -> str:
    named = ", ".join(map(_op, result.ops))
    if result.fused_by is None:
        return f"{named}, alone"
    variant, function = result.fused_by
    return f"{named}, alone, as {function} of {variant} computes it"


def _op(op: Operator) -> str:
    return f"{op.index} {op.type}" + (f" {op.window}" if op.window else "")


def _times(result: OpResult) -> str:
    rows = [
        {
            "variant": found.name,
            "function alone us": _us(found.alone_us),
            "in the network us": _us(found.network_us),
            "task of the network": task.task if task else _NONE,
            "best us in its records": _change(task) if task else _NONE,
            "new records": str(task.records) if task else _NONE,
        }
        for found in result.variants
        for task in found.tasks or (None,)
    ]
    return tabulate(rows, headers="keys", tablefmt="simple", disable_numparse=True)


def _change(task: AdoptedTask) -> str:
    if task.before_us == task.after_us:
        return _us(task.before_us)
    return f"{_us(task.before_us)} -> {_us(task.after_us)}"


def _us(us: float | None) -> str:
    return _NONE if us is None else f"{us:.2f}"


def _notes(result: OpResult) -> list[str]:
    notes = [f"{found.name}: {found.problem or _not_shared()}" for found in result.variants if not found.tasks]
    if any(found.network_us is None for found in result.variants):
        notes.append(
            "in the network: - where no profile of the network on this device has it; layoutlab profile makes one"
        )
    count = sum(task.records for found in result.variants for task in found.tasks)
    if count and not result.request.write_back:
        notes.append(f"{_records(count)} would go into those of the network: do the same without --no-write-back")
    elif count:
        notes.append(
            f"{_records(count)} went into those of the network, on top of the spec's budget, with a better best time "
            f"for {_gain(result.variants)}; layoutlab run builds with them"
        )
    elif any(found.tasks for found in result.variants):
        notes.append("the records of the network have all of these already")
    return notes


def _not_shared() -> str:
    return "none of its tasks is one of the network's, so its records stay here"


def _records(count: int) -> str:
    return f"{count} record{'' if count == 1 else 's'}"


def _gain(variants: tuple[AloneVariant, ...]) -> str:
    """`2 of 3 tasks`."""
    tasks = [task for found in variants for task in found.tasks]
    better = sum(task.after_us != task.before_us for task in tasks)
    return f"{better} of {len(tasks)} task{'' if len(tasks) == 1 else 's'}"
