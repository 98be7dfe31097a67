"""What was found in a log, as text and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from tabulate import tabulate

from layoutlab.triage import judge
from layoutlab.triage.advice import Step, next_steps
from layoutlab.triage.functions import FunctionTime, FunctionTimes, compare
from layoutlab.triage.read import Log
from layoutlab.triage.workloads import Untuned, Workload

_WIDTH = 110
_MOST_ROWS = 40
_SLOWEST = 10


def triage_text(name: str, log: Log) -> str:
    """Every part that the log has, then what to try next."""
    parts = [f"{name}: {log.lines} lines with text"]
    if log.untuned.workloads or log.untuned.unnamed or log.untuned.cut_short:
        parts.append(
            _part(_untuned_heading(log.untuned), _untuned_table(log.untuned), judge.untuned_findings(log.untuned))
        )
    if log.targets:
        parts.append(_part("Target", "", judge.target_findings(log)))
    if log.tuning.sessions or log.tuning.errors or log.tuning.hopeless:
        parts.append(_part(_tuning_heading(log), "", judge.tuning_findings(log.tuning)))
    if log.functions is not None:
        heading = f"Time by function: {len(log.functions.rows)} rows, {log.functions.total_us:.0f} us in all"
        table = "\n\n".join([_kinds_table(log.functions), _slowest_table(log.functions)])
        parts.append(_part(heading, table, judge.time_findings(log.functions, log.relay)))
    if log.relay.convs:
        parts.append(_part("Layouts in Relay", "", judge.relay_findings(log.relay)))
    parts.append(_steps(next_steps(log)))
    return "\n\n".join(parts) + "\n"


def triage_json(name: str, log: Log) -> str:
    """Everything that was read, what was told from it, and the steps."""
    findings = {
        "untuned": list(judge.untuned_findings(log.untuned)),
        "target": list(judge.target_findings(log)),
        "tuning": list(judge.tuning_findings(log.tuning)),
        "time": [] if log.functions is None else list(judge.time_findings(log.functions, log.relay)),
        "relay": list(judge.relay_findings(log.relay)),
    }
    data = {
        "format": 1,
        "log": name,
        "lines": log.lines,
        "untuned": {
            "workloads": [{**asdict(workload), "times": times} for workload, times in log.untuned.workloads.items()],
            "targets": log.untuned.targets,
            "unnamed": log.untuned.unnamed,
            "cut_short": log.untuned.cut_short,
        },
        "tuning": asdict(log.tuning),
        "functions": None if log.functions is None else _functions_data(log.functions),
        "relay": {
            "convs": [asdict(conv) for conv in log.relay.convs],
            "transforms": [{"from": a, "to": b, "count": count} for (a, b), count in log.relay.transforms.items()],
            "transposes": log.relay.transposes,
        },
        "findings": findings,
        "next": [asdict(step) for step in next_steps(log)],
    }
    return json.dumps(data, indent=1) + "\n"


def _functions_data(times: FunctionTimes) -> dict[str, Any]:
    rows = []
    for row in times.rows:
        peer = compare(row, times)
        peers = None if peer is None else asdict(peer)
        rows.append({**asdict(row), "kind": row.kind, "changes_layout": row.changes_layout, "others_of_kind": peers})
    return {"total_us": times.total_us, "rows": rows}


def _part(heading: str, table: str, findings: Iterable[str]) -> str:
    bullets = "\n".join(_wrapped(f"- {finding}", "  ") for finding in findings)
    return "\n\n".join(filter(None, [heading, table, bullets]))


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _untuned_heading(untuned: Untuned) -> str:
    count = len(untuned.workloads)
    warnings = sum(untuned.workloads.values()) + untuned.cut_short
    return f"Untuned: {count} workload{'' if count == 1 else 's'} in {warnings} warning{'' if warnings == 1 else 's'}"


def _untuned_table(untuned: Untuned) -> str:
    """The workloads, grouped by operator and layout."""
    groups: dict[tuple[str, str], list[Workload]] = defaultdict(list)
    for workload in untuned.workloads:
        groups[workload.op, workload.layout].append(workload)
    rows = [workload for key in sorted(groups, key=lambda key: -len(groups[key])) for workload in groups[key]]
    if not rows:
        return ""
    table = tabulate(
        [_workload_row(workload, untuned.workloads[workload]) for workload in rows[:_MOST_ROWS]],
        headers="keys",
        tablefmt="simple",
        disable_numparse=True,
    )
    return table if len(rows) <= _MOST_ROWS else f"{table}\nand {len(rows) - _MOST_ROWS} more (--json has all)"


def _workload_row(workload: Workload, times: int) -> dict[str, str]:
    kernel = _shape(workload.kernel) + (f" {workload.kernel_layout}" if workload.kernel_layout else "")
    return {
        "op": workload.op,
        "layout": workload.layout or "-",
        "data": _shape(workload.data),
        "kernel": kernel,
        "strides": _shape(workload.strides) if workload.strides else "-",
        "dtype": workload.dtype,
        "warnings": str(times),
    }


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "-"


def _tuning_heading(log: Log) -> str:
    tasks = [task for session in log.tuning.sessions for task in session.tasks]
    trials, seconds = sum(task.tried for task in tasks), sum(task.seconds for task in tasks)
    best = max((task.best_gflops for task in tasks), default=0.0)
    counts = f"{len(tasks)} task{'' if len(tasks) == 1 else 's'}, {trials} trial{'' if trials == 1 else 's'}"
    return f"Tuning: {counts} in {seconds:.0f} s, best {best:.2f} GFLOPS"


def _kinds_table(times: FunctionTimes) -> str:
    kinds: dict[str, list[FunctionTime]] = defaultdict(list)
    for row in times.rows:
        kinds[row.kind].append(row)
    rows = [
        {
            "kind, by name": kind,
            "rows": str(len(found)),
            "us": f"{sum(row.us for row in found):.0f}",
            "share": f"{sum(row.us for row in found) / times.total_us:.1%}",
        }
        for kind, found in sorted(kinds.items(), key=lambda item: -sum(row.us for row in item[1]))
    ]
    return tabulate(rows, headers="keys", tablefmt="simple", disable_numparse=True, colalign=("left", *["right"] * 3))


def _slowest_table(times: FunctionTimes) -> str:
    rows = []
    for row in times.rows[:_SLOWEST]:
        peer = compare(row, times)
        rows.append(
            {
                "slowest, medians of its kind": row.name,
                "output": _shape(row.shape),
                "us": f"{row.us:.0f}",
                "share": f"{row.us / times.total_us:.1%}",
                "x median us": "-" if peer is None else f"{peer.times_median:.1f}",
                "x median us/element": "-"
                if peer is None or peer.times_per_element is None
                else f"{peer.times_per_element:.2f}",
            }
        )
    return tabulate(
        rows, headers="keys", tablefmt="simple", disable_numparse=True, colalign=("left", "left", *["right"] * 4)
    )


def _steps(steps: list[Step]) -> str:
    lines = ["What to try next"]
    for number, step in enumerate(steps, 1):
        lines += ["", f"{number}. {step.command}", textwrap.indent(_wrapped(step.why, ""), "   ")]
        if step.file:
            lines += ["", textwrap.indent(step.file.rstrip(), "       ")]
    lines += [
        "",
        _wrapped(
            "layoutlab compiles these variants with TVM's Relax. With engine: relay they are tuned by AutoTVM, which "
            "goes on from a log of its own: tuning: {logs: [FILE]}.",
            "",
        ),
    ]
    return "\n".join(lines)
