"""Record sets made from others: merged, and pruned to the best records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from layoutlab.errors import UsageError
from layoutlab.records.files import Dropped, RecordSet, renumbered
from layoutlab.records.identity import differences
from layoutlab.records.lines import Record


def pruned(records: RecordSet) -> RecordSet:
    """The best record of each workload; all others are only counted, as spent. Of equal times the first stays."""
    best: dict[int, Record] = {}
    for record in records.records:
        if not record.failed and (record.workload not in best or record.seconds < best[record.workload].seconds):
            best[record.workload] = record
    kept = tuple(best[number] for number in sorted(best))
    gone = [
        Dropped(workload=record.workload, trials=1, failed=int(record.failed))
        for record in records.records
        if record is not best.get(record.workload)
    ]
    same = {number: number for number in range(len(records.workloads))}
    return replace(records, records=kept, dropped=renumbered([*records.dropped, *gone], same))


def merged(sets: Mapping[Path, RecordSet]) -> RecordSet:
    """All records of sets that belong to the same; each workload and each record once.

    Dropped trials are summed, those of sets that dropped exactly the same once: such sets come from one. Raises
    UsageError when sets belong to different things.
    """
    (first_path, first), *others = sets.items()
    for path, other in others:
        _require_same(first_path, first, path, other)
    numbers: dict[bytes, int] = {}
    records: dict[bytes, Record] = {}
    dropped: list[Dropped] = []
    counted: set[frozenset[tuple[bytes, int, int]]] = set()
    for found in sets.values():
        places = {number: numbers.setdefault(line, len(numbers)) for number, line in enumerate(found.workloads)}
        for record in found.records:
            moved = replace(record, workload=places[record.workload])
            records.setdefault(moved.line(), moved)
        spent = frozenset((found.workloads[item.workload], item.trials, item.failed) for item in found.dropped)
        if spent not in counted:
            dropped += renumbered(found.dropped, places)
        counted.add(spent)
    same = {number: number for number in numbers.values()}
    return replace(first, workloads=tuple(numbers), records=tuple(records.values()), dropped=renumbered(dropped, same))


def _require_same(first_path: Path, first: RecordSet, path: Path, other: RecordSet) -> None:
    differ = differences(first.identity, other.identity)
    if differ:
        lines = [f"  {difference.text(f'in {first_path}', f'in {path}')}" for difference in differ]
        raise UsageError(
            "\n".join(
                [
                    f"{first_path} and {path} do not belong together, so their times cannot be compared:",
                    *lines,
                    "Merge records of one thing only; a run may use the others for what it has no record of: --borrow",
                ]
            )
        )


def counts(records: RecordSet) -> str:
    """`39 workloads, 1000 trials (12 failed), 39 of them kept as records`."""
    failed = f" ({records.failed} failed)" if records.failed else ""
    tried = _count(records.trials, "trial") + failed
    kept = len(records.records)
    some = "" if kept == records.trials else f", {kept} of them kept as records"
    return f"{_count(len(records.workloads), 'workload')}, {tried}{some}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
