"""The post: question, answer, setup, table, why, caveats, how to reproduce. In Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from layoutlab.compare.across import SpecsTable, specs_table
from layoutlab.compare.results import Result, ResultRow
from layoutlab.discuss.caveats import caveats, tuned_rows
from layoutlab.discuss.why import Why, explain
from layoutlab.measure.stats import Ratio
from layoutlab.report.markdown import code, plain
from layoutlab.report.pairs import pairs_table, ratio_text
from layoutlab.report.search import search_text
from layoutlab.spec.target import format_target

_NONE = "-"


def discussion_post(results: Sequence[Result]) -> str:
    """A whole post from results that can stand in one table; raises UsageError when they cannot."""
    table = specs_table(results)
    run = results[0].run
    threads = f"{run['threads']} thread{'s' if run['threads'] > 1 else ''}"
    blocks = [
        f"# Data layouts of {plain(run['model'])} on {plain(run['device'])}",
        "## Question",
        f"Which data layout should {plain(run['model'])} have when Apache TVM compiles it for this CPU, {threads}, "
        "and is that faster than TFLite?",
        *[plain(result.data["description"].strip()) for result in results if result.data["description"]],
        "## Answer",
        _answer(table),
        "## Setup",
        _list(_setup(results)),
        "## Results",
        _results(table),
        pairs_table(table.pairs, "github"),
        _reading(table),
        "## Why",
        *_why(table),
        "## Caveats",
        _list(caveats(results, table)),
        "## How to reproduce",
        *_reproduce(results),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _answer(table: SpecsTable) -> str:
    rows = tuned_rows(table)
    if not rows:
        return "None: no tuned variant has a time."
    (best, row), *others = rows
    to_tflite = row.to_tflite
    said = [f"The fastest tuned variant is **{best}**, {_against_tflite(to_tflite)}."]
    verdicts = {frozenset((pair.variant, pair.other)): pair.ratio.verdict for pair in table.pairs}
    for verdict, words in (
        ("no difference shown", "No difference was shown between it and {}."),
        ("unstable", "Nothing can be said of it against {}: the measurements were too unstable."),
    ):
        names = [label for label, _ in others if verdicts.get(frozenset((best, label))) == verdict]
        if names:
            said.append(words.format(" and ".join(names)))
    return " ".join(said)


def _against_tflite(found: Ratio | None) -> str:
    if found is None:
        return "and there is no ratio to TFLite"
    words = {
        "faster": "faster than TFLite",
        "slower": "slower than TFLite",
        "no difference shown": "with no difference from TFLite shown",
        "unstable": "with no verdict against TFLite",
    }
    return f"{words[found.verdict]} ({ratio_text(found)} times its latency)"


def _setup(results: Sequence[Result]) -> list[str]:
    first = results[0]
    run, check, measure = first.run, first.data["check"], first.data["measure"]
    measured = (
        f"{measure['rounds']} rounds in fresh processes, rows interleaved, {measure['repeats']} samples of at least "
        f"{measure['min_repeat_ms']} ms each"
    )
    tunings = dict.fromkeys(_tuning(result) for result in results)
    return [
        f"Model: {plain(run['model'])}, {run['model_bytes'] / 1e6:.1f} MB, sha256 `{run['model_sha256']}`",
        f"Device: {plain(run['device'])}: {plain(run['device_reason'])}",
        f"Target: {code(format_target(run['target']))}",
        f"Baseline: {plain(first.data['baseline_runtime'])}",
        f"Tuning: {'; '.join(tunings)}",
        "Measuring: " + ("one counted inference of each row" if first.simulated else measured),
        f"Outputs of every variant were compared with TFLite's on {check['inputs']} seeded inputs first",
    ]


def _tuning(result: Result) -> str:
    tuning = result.data["tuning"]
    return f"{tuning['trials']} trials a variant, {search_text(tuning)}, seed {tuning['seed']}"


def _results(table: SpecsTable) -> str:
    rows = [_cells(label, row, table.simulated) for label, row in table.rows]
    align = ["left", "left", *["right"] * (len(rows[0]) - 3), "left"]
    return tabulate(rows, headers="keys", tablefmt="github", disable_numparse=True, colalign=align)


def _cells(label: str, row: ResultRow, simulated: bool) -> dict[str, str]:
    data, found = row.data, row.latency
    ms = _NONE if row.ms is None else f"{row.ms:.3f}"
    verdict = row.to_tflite.verdict if row.to_tflite else "baseline"
    layouts = data["layouts"]
    return {
        "variant": label,
        "conv layouts": ", ".join(f"{count} {name}" for name, count in layouts.items()) if layouts else _NONE,
        "simulated ms" if simulated else "ms (MAD)": f"{ms} ({found.mad_ms:.3f})" if found else ms,
        "x TFLite" if simulated else "x TFLite [95 %]": ratio_text(row.to_tflite),
        "verdict": f"failed: {data['failure']['stage']}" if row.failure else verdict,
        "transforms": _NONE if data["transforms"] is None else str(data["transforms"]),
        "ops tuned": _NONE if data["ops"] is None else _tuned(row),
        "flags": plain(", ".join(row.flags)) or _NONE,
    }


def _tuned(row: ResultRow) -> str:
    one_point = row.data["ops_one_point"]
    return f"{row.data['ops_tuned']}/{row.data['ops']}" + (f" ({one_point} of one point)" if one_point else "")


def _reading(table: SpecsTable) -> str:
    said = "Below 1 is faster. *Faster* and *slower* mean a difference of at least 2 %"
    if table.simulated:
        return f"{said}; simulated figures repeat exactly and have no interval."
    return f"{said} with an interval (95 %, bootstrap over rounds) that leaves out 1."


def _why(table: SpecsTable) -> list[str]:
    rows = tuned_rows(table)
    found = [why for slow in rows[1:] if (why := explain(rows[0], slow))]
    if not found:
        specs = dict.fromkeys(row.result.spec for _, row in rows)
        commands = " and ".join(f"`layoutlab profile {spec}.yaml`" for spec in specs)
        more = f": run {commands} to see where the time goes" if specs else ""
        return [f"There are no profiles of two tuned variants{more}."]
    return [block for why in found for block in _explained(why)]


def _explained(why: Why) -> list[str]:
    rows = [
        (
            plain(difference.operator),
            *(f"{us:.1f}" for us in (difference.fast_us, difference.slow_us)),
            f"{difference.lost_us:+.1f}",
        )
        for difference in why.largest
    ]
    table = tabulate(
        rows,
        headers=("operator", f"us in {why.fast}", f"us in {why.slow}", "difference"),
        tablefmt="github",
        disable_numparse=True,
        colalign=("left", "right", "right", "right"),
    )
    shown = sum(difference.lost_us for difference in why.largest)
    said = (
        f"**{why.slow}** against **{why.fast}**: {why.total_us:+.1f} us end to end in their profiles. The operators "
        f"that differ most, with what is fused to them, sum to {shown:+.1f} us:"
    )
    return [said, table, *(f"Note: {plain(note)}." for note in why.notes)]


def _reproduce(results: Sequence[Result]) -> list[str]:
    commands = [f"layoutlab run {result.spec}.yaml" for result in results]
    if len(results) > 1:
        commands.append(f"layoutlab compare {' '.join(result.spec for result in results)}")
    versions = [
        ", ".join(f"{name} {version}" for name, version in result.run["versions"].items()) for result in results
    ]
    measure = results[0].data["measure"]
    return [
        "```\n" + "\n".join(commands) + "\n```",
        _list(
            [
                *(f"Versions: {plain(text)}" for text in dict.fromkeys(versions)),
                f"Seeds: measuring {measure['seed']}, inputs {results[0].data['check']['seed']}, tuning "
                f"{', '.join(dict.fromkeys(str(result.data['tuning']['seed']) for result in results))}",
                "Raw samples, tuning coverage and all settings are in `table.json` and `coverage.csv` of each result",
            ]
        ),
    ]


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
