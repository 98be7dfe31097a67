"""What TFLite's `benchmark_model` printed, or wrote to --result_file_path, as one record.

The tool's statistics are of two phases: the first `count=` line is the warm-up, the second the run. Calls are whole
microseconds; averages have six digits, such as 13520.2 or 1.24027e+06, and are printed again in the summary line at
the end. See `tflite/tools/benchmark` in the LiteRT sources.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from layoutlab.baseline.result import BenchmarkResult, RunStats
from layoutlab.baseline.result_proto import read_proto
from layoutlab.baseline.tool_log import Line, decode, is_text, tool_lines
from layoutlab.errors import BaselineError
from layoutlab.spec.words import did_you_mean, quoted

# The tool's flags that have a part in a CPU baseline, for did-you-mean.
KNOWN_FLAGS = (
    *("graph", "num_threads", "num_runs", "min_secs", "max_secs", "run_delay", "run_frequency", "warmup_runs"),
    *("warmup_min_secs", "use_xnnpack", "use_caching", "allow_fp16", "dry_run", "verbose", "enable_op_profiling"),
    *("op_profiling_output_mode", "op_profiling_output_file", "profiling_output_csv_file", "result_file_path"),
    *(
        "report_peak_memory_footprint",
        "xnnpack_force_fp16",
        "input_layer",
        "input_layer_shape",
        "input_layer_value_range",
    ),
)

_NUMBER = r"-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|nan|inf)"
_COUNT = re.compile(
    rf"count=\d+(?: first={_NUMBER} curr={_NUMBER} min={_NUMBER} max={_NUMBER} avg={_NUMBER} std={_NUMBER}"
    rf"| curr={_NUMBER} ?(?:\(all same\))?)?(?: p5={_NUMBER} median={_NUMBER} p95={_NUMBER})?"
)
_PAIR = re.compile(rf"(\w+)=({_NUMBER})")
_SUMMARY = re.compile(r"(?:Average )?[Ii]nference timings in us:")
_SUMMARY_PAIR = re.compile(rf"([A-Z][\w ]*(?: \(avg\))?|no stats): ({_NUMBER})")
# LiteRT's tool of the same name, for its CompiledModel, ends with a table in ms instead.
_TABLE = "========== BENCHMARK RESULTS"
_TABLE_MS = re.compile(r"(Model initialization|Warmup \(first\)|Warmup \(avg\)|Inference \(avg\)): +([\d.]+) ms\b")
_TABLE_NAMES = {
    "Model initialization": "init",
    "Warmup (first)": "first inference",
    "Warmup (avg)": "warmup",
    "Inference (avg)": "inference",
}
_TABLE_MB = {
    "init": re.compile(r"Init footprint: +([\d.]+) MB"),
    "overall": re.compile(r"Overall footprint: +([\d.]+) MB"),
}
_PARAMETER = re.compile(r"([A-Za-z#][^:\[\]]*?) ?: \[(.*)\]")
_MEMORY = re.compile(
    rf"(?:Memory footprint delta.*|Peak memory footprint) \(MB\): init=({_NUMBER}) overall=({_NUMBER})"
)
_PEAK = re.compile(rf"(?:Overall peak memory footprint \(MB\) via periodic monitoring:|Peak memory:) +({_NUMBER})")
_MODEL_MB = re.compile(rf"The input model file size \(MB\): ({_NUMBER})")
_LOADING = re.compile(r"Loading model from: (.+)")
_APPLIED = re.compile(r"(?:Explicitly applied|Applied) (\S+) delegate\b")
_NOT_USED = re.compile(r"Though (\S+) delegate is explicitly applied, .* not be executed")
_CREATED = "Created TensorFlow Lite XNNPACK delegate for CPU."
_UNCONSUMED = "Unconsumed cmdline flags:"
_FAILED = ("Failed to", "Benchmarking failed", "Could not", "Cannot", "Disallowed CPU fallback")
_NO_FAILURE = "Failed to get the input model file size"

_OTHER_TOOL = (
    "LiteRT's tool for CompiledModel has the same name, and not this flag: take that of TFLite's interpreter, or save "
    "the outputs and name them in baseline.results"
)
_RUN_IT = "expected the whole output of one run of benchmark_model, or the file of its --result_file_path"


def read_result(path: Path) -> BenchmarkResult:
    """The run that the file reports: saved output of any form, or a result proto.

    Raises BaselineError, naming the file, when there is no such file, or when the run failed or cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BaselineError(f"cannot read the baseline's result {path}: {error.strerror}") from error
    if not data.strip():
        raise BaselineError(f"{path} is empty: {_RUN_IT}")
    return parse_output(decode(data), str(path)) if is_text(data) else read_proto(data, str(path))


def parse_output(text: str, source: str) -> BenchmarkResult:
    """The run that this output of the tool reports; `source` is how messages call it.

    Raises BaselineError when a flag was not known, the run failed, nothing was measured, or the output is cut off.
    """
    lines = tool_lines(text)
    _refuse_unknown_flags(lines, source)
    _refuse_failure(lines, source)
    parameters = {match[1].lower(): match[2] for line in lines if (match := _PARAMETER.fullmatch(line.text))}
    phases = [_count_line(line.text, source) for line in lines if line.text.startswith("count=")]
    if parameters.get("run w/o invoking kernels") == "1" or (phases and phases[-1] == {"count": 0}):
        raise BaselineError(f"{source}: a dry run, which measures nothing: run benchmark_model without --dry_run")
    summary = _summary(lines, len(phases), source)
    warmup, run = _split(phases, summary, source)
    memory = _first(_MEMORY, lines)
    threads = parameters.get("num threads") or parameters.get("#threads used for cpu inference") or ""
    return BenchmarkResult(
        inference=_stats(run, summary["inference"]),
        warmup=_stats(warmup, summary["warmup"]) if warmup or summary.get("warmup") else None,
        init_us=summary.get("init"),
        first_inference_us=summary.get("first inference") or warmup.get("first"),
        init_memory_mb=float(memory[1]) if memory else _first_number(_TABLE_MB["init"], lines),
        overall_memory_mb=float(memory[2]) if memory else _first_number(_TABLE_MB["overall"], lines),
        peak_memory_mb=_first_number(_PEAK, lines),
        model_mb=_first_number(_MODEL_MB, lines),
        threads=int(threads) if threads.isdigit() else None,
        xnnpack=_xnnpack(lines, parameters),
        delegates=tuple(dict.fromkeys(_applied(lines) - {"XNNPACK"})),
        graph=parameters.get("graph") or (loading[1] if (loading := _first(_LOADING, lines)) else None),
        warnings=tuple(line.text for line in lines if line.level in "WEF" and line.level),
    )


def _refuse_unknown_flags(lines: Sequence[Line], source: str) -> None:
    """The tool only warns of a flag it does not know, and then measures something else than was asked for."""
    for line in lines:
        if line.text.startswith(_UNCONSUMED):
            words = line.text.removeprefix(_UNCONSUMED).split()
            flags = [word.partition("=")[0].removeprefix("--") for word in words if word.startswith("--")] or words
            told = ", ".join(
                f"--{flag}{'' if flag in KNOWN_FLAGS else did_you_mean(flag, KNOWN_FLAGS)}" for flag in flags
            )
            raise BaselineError(
                f"{source}: benchmark_model ignored what it does not know, {told}{'' if told.endswith('?') else '.'} "
                f"{_OTHER_TOOL if flags == ['use_xnnpack'] else 'Correct the flag, or use a newer build of the tool'}"
            )


def _refuse_failure(lines: Sequence[Line], source: str) -> None:
    said = [line.text for line in lines if line.level in ("E", "F") or line.text.startswith(_FAILED)]
    said = [text for text in said if not text.startswith(_NO_FAILURE)]
    delegate = next((text for text in said if re.match(r"Failed to apply \S+ delegate", text)), None)
    ended = delegate or any(text.startswith("Benchmarking failed") for text in said)
    if not ended and any(_ends(line.text) for line in lines):
        return
    if delegate:
        why = "" if said[0] == delegate else f" ({said[0].rstrip('.')})"
        raise BaselineError(
            f"{source}: benchmark_model failed: {delegate.rstrip('.')}{why}. "
            "Measure without the delegate, or use a build that has it for this model"
        )
    if said:
        raise BaselineError(f"{source}: benchmark_model failed: {said[0]}")


def _ends(text: str) -> bool:
    return bool(_SUMMARY.match(text)) or text.startswith(_TABLE)


def _count_line(text: str, source: str) -> dict[str, float]:
    """The numbers of a `count=` line; equal calls are printed as one number, from which the others follow."""
    if not _COUNT.fullmatch(text):
        raise BaselineError(f"{source}: cut off, or changed, in the line {quoted(text)}: {_RUN_IT}")
    found = {name: float(value) for name, value in _PAIR.findall(text)}
    if "avg" not in found and "curr" in found:
        same = ("first", "min", "max", "avg", "median", "p5", "p95")
        found = {**dict.fromkeys(same, found["curr"]), "std": 0.0, **found}
    return found


def _summary(lines: Sequence[Line], phases: int, source: str) -> dict[str, float]:
    """The summary line's numbers by lower-case name; averages are `warmup` and `inference`."""
    found = [line.text for line in lines if _ends(line.text)]
    if len(found) > 1:
        raise BaselineError(
            f"{source}: holds {len(found)} runs: save each run in a file of its own, one for each round"
        )
    if not found and phases == 0:
        started = any(line.text.startswith(("STARTING!", "Loaded model", "Running benchmark")) for line in lines)
        raise BaselineError(f"{source}: {'ends before' if started else 'has no'} inference statistics: {_RUN_IT}")
    if not found:
        after = "the warm-up" if phases == 1 else "the statistics, before the summary line"
        raise BaselineError(f"{source}: ends after {after}: {_RUN_IT}")
    numbers = _table_numbers(lines) if found[0].startswith(_TABLE) else _summary_numbers(found[0])
    if not numbers.get("inference"):
        raise BaselineError(f"{source}: no average of the inference in the line {quoted(found[0])}: {_RUN_IT}")
    return numbers


def _summary_numbers(text: str) -> dict[str, float]:
    return {
        name.lower().removesuffix(" (avg)").replace("no stats", "inference"): float(value)
        for name, value in _SUMMARY_PAIR.findall(text.partition(":")[2])
        if value != "nan"
    }


def _table_numbers(lines: Sequence[Line]) -> dict[str, float]:
    """In microseconds; the table has two digits of a millisecond."""
    found = [match for line in lines if (match := _TABLE_MS.match(line.text))]
    return {_TABLE_NAMES[match[1]]: round(float(match[2]) * 1e3) for match in found}


def _split(
    phases: Sequence[dict[str, float]], summary: dict[str, float], source: str
) -> tuple[dict[str, float], dict[str, float]]:
    """The warm-up's numbers and the run's; empty where the line is not there (a log that went through grep)."""
    warmup, run = ([{}, {}, *phases] if len(phases) < 2 else phases)[-2:]
    if len(phases) == 1 and not _agree(run, summary["inference"]):
        warmup, run = run, {}
    if len(phases) > 2 or not _agree(run, summary["inference"]) or not _agree(warmup, summary.get("warmup")):
        raise BaselineError(f"{source}: the statistics and the summary are not of the same run: {_RUN_IT}")
    return ({} if warmup.get("count") == 0 else warmup), run


def _agree(phase: dict[str, float], average: float | None) -> bool:
    """Whether the average is the summary's; old builds drop its fraction there, and a table has tens of us."""
    return "avg" not in phase or average is None or math.isclose(phase["avg"], average, rel_tol=1e-4, abs_tol=6)


def _stats(phase: dict[str, float], average: float) -> RunStats:
    if not phase:
        return RunStats(avg_us=average)
    count = int(phase["count"])
    return RunStats(count=count, **{f"{name}_us": value for name, value in phase.items() if name != "count"})


def _xnnpack(lines: Sequence[Line], parameters: dict[str, str]) -> bool | None:
    """What was asked for does not count where the log says what was done."""
    if any((match := _NOT_USED.match(line.text)) and match[1] == "XNNPACK" for line in lines):
        return False
    if "XNNPACK" in _applied(lines) or any(line.text == _CREATED for line in lines):
        return True
    return {"1": True, "0": False}.get(parameters.get("use xnnpack", ""))


def _applied(lines: Sequence[Line]) -> set[str]:
    return {match[1] for line in lines if (match := _APPLIED.match(line.text))}


def _first(pattern: re.Pattern[str], lines: Sequence[Line]) -> re.Match[str] | None:
    return next((match for line in lines if (match := pattern.match(line.text))), None)


def _first_number(pattern: re.Pattern[str], lines: Sequence[Line]) -> float | None:
    match = _first(pattern, lines)
    return float(match[1]) if match else None
