"""What limits a result, in sentences, from the flags of its rows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from layoutlab.baseline.tflite import BASELINE
from layoutlab.compare.across import SpecsTable
from layoutlab.compare.results import Result, ResultRow
from layoutlab.report.markdown import plain

_FEW_ROUNDS = 6

# A flag of tables -> what it means for the reader; groups are the flag's numbers.
_MEANING: dict[str, str] = {
    r"untuned": "was not tuned: it shows what tuning is worth, and nothing about its layout",
    r"(\d+) ops untuned": "{0} of its ops have no tuning record and run as naive loops",
    r"borrowed \((\d+)\)": "{0} of its ops run with tuning records of another device, model or version",
    r"unstable": "its rounds differ too much for the median to mean a latency",
    r"disturbed (\d+) of (\d+) rounds": "{0} of its {1} rounds were disturbed by heat or by other programs",
    r"stopped by (.+)": "its tuning ended before the budget was spent ({0})",
    r"int8 computed as float32": "the model is quantised, and TVM's importer computes it as float32",
    r"mixed layouts": "its convolutions are not all in one layout",
    r"baseline by benchmark_model": "was measured by TFLite's benchmark_model, which reports an average a round",
    r"(\d+) instructions without a price": "{0} of its instructions have no price in the model of the core",
}


def caveats(results: Sequence[Result], table: SpecsTable) -> list[str]:
    """One sentence each, the gravest first."""
    found = []
    if table.simulated:
        found.append(
            "All figures are simulated, not measured: counted under qemu and priced by a model of the core. They show "
            "what differs between layouts, and do not replace a device"
        )
    found += [f"`{label}` has no figure: {plain(row.failure)}" for label, row in table.rows if row.failure]
    found += [
        _sentence(label, flag) for label, row in table.rows for flag in row.flags if flag != "simulated"
    ] + _unstable(table)
    rounds = min(result.data["measure"]["rounds"] for result in results)
    if not table.simulated and rounds < _FEW_ROUNDS:
        found.append(f"Only {rounds} round{'s' if rounds > 1 else ''}: for trying out, not for publication")
    found += list(table.notes)
    found += [line for result in results for line in _borrowed(result)]
    found.append("One model, on one device, with one number of threads: others may order the layouts otherwise")
    return [f"{line}." for line in found]


def _sentence(label: str, flag: str) -> str:
    for pattern, meaning in _MEANING.items():
        if match := re.fullmatch(pattern, flag):
            return f"`{label}`: " + meaning.format(*map(plain, match.groups()))
    return f"`{label}`: {plain(flag)}"


def _unstable(table: SpecsTable) -> list[str]:
    names = [f"`{label}`" for label, row in table.rows if row.to_tflite and row.to_tflite.verdict == "unstable"]
    return [f"No verdict on {', '.join(names)}: too much else happened while it was measured"] if names else []


def _borrowed(result: Result) -> list[str]:
    return [
        f"Records of `{variant}` for {lent['ops']} ops come from {plain(lent['source'])}"
        for variant, found in result.data.get("records", {}).items()
        for lent in found.get("borrowed", ())
    ]


def tuned_rows(table: SpecsTable) -> list[tuple[str, ResultRow]]:
    """The rows that compete: tuned variants that have a time, the fastest first."""
    timed = [(row.ms, label, row) for label, row in table.rows if row.ms and row.data["tuned"] and row.name != BASELINE]
    return [(label, row) for _, label, row in sorted(timed, key=lambda item: item[0])]
