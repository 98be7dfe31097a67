"""Every form of the tool's output, read as one record; everything that is no result, refused with its reason."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from layoutlab.baseline.benchmark_model import parse_output, read_result
from layoutlab.errors import BaselineError

GOLDEN = Path(__file__).parent / "golden"
CURRENT = (GOLDEN / "current.txt").read_text()
FORMS = sorted(path.name for path in GOLDEN.iterdir() if path.suffix in (".txt", ".pb"))

RUN = {
    "inference": {
        "avg_us": 1_243_180.0,
        "count": 30,
        "first_us": 1_241_669.0,
        "curr_us": 1_249_224.0,
        "min_us": 1_233_931.0,
        "max_us": 1_251_931.0,
        "std_us": 4369.0,
        "median_us": 1_244_588.0,
        "p5_us": 1_234_204.0,
        "p95_us": 1_249_224.0,
    },
    "warmup": {
        "avg_us": 1_326_790.0,
        "count": 2,
        "first_us": 1_391_204.0,
        "curr_us": 1_262_377.0,
        "min_us": 1_262_377.0,
        "max_us": 1_391_204.0,
        "std_us": 64_413.0,
        "median_us": 1_391_204.0,
        "p5_us": 1_262_377.0,
        "p95_us": 1_391_204.0,
    },
    "init_us": 21_847.0,
    "first_inference_us": 1_391_204.0,
    "init_memory_mb": 19.5,
    "overall_memory_mb": 27.75,
    "peak_memory_mb": 31.125,
    "model_mb": 15.6843,
    "threads": 1,
    "xnnpack": True,
    "delegates": (),
    "graph": "/data/local/tmp/mobilenet.tflite",
    "warnings": (),
}
PERCENTILES = {f"{phase}.{name}_us" for phase in ("inference", "warmup") for name in ("median", "p5", "p95")}
SETTINGS = {"threads", "xnnpack", "graph"}
MEMORY = {"init_memory_mb", "overall_memory_mb"}
WARMUP = {f"warmup.{name}" for name in RUN["warmup"] if name != "avg_us"}
# What each form leaves out; only one says the peak.
LACKS = {
    "prefix_no_percentiles.txt": PERCENTILES,
    "no_prefix.txt": PERCENTILES,
    "2018.txt": PERCENTILES | MEMORY | {"model_mb", "xnnpack"},
    "2019.txt": PERCENTILES | MEMORY | {"model_mb", "xnnpack"},
    "grepped_run.txt": WARMUP | MEMORY | SETTINGS | {"model_mb"},
    "grepped_summary.txt": WARMUP
    | MEMORY
    | SETTINGS
    | {"model_mb"}
    | {f"inference.{name}" for name in RUN["inference"] if name != "avg_us"},
    "result.pb": SETTINGS | (WARMUP - {"warmup.count"}) | {"inference.first_us", "inference.curr_us"},
}


def flat(record: dict) -> dict:
    """The record with `inference.avg_us` for nested values."""
    return {
        f"{name}.{inner}" if inner else name: value
        for name, part in record.items()
        for inner, value in (part.items() if isinstance(part, dict) else [("", part)])
    }


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_the_same_record(name):
    lacks = LACKS.get(name, set()) | (set() if name == "peak_memory.txt" else {"peak_memory_mb"})
    expected = {key: None if key in lacks else value for key, value in flat(RUN).items()}
    found = flat(asdict(read_result(GOLDEN / name)))
    # Text has six digits of an average, CompiledModel's four of a start; the proto has a fraction of the deviation.
    coarse = ("std_us", "init_us")
    close = {key: pytest.approx(value, rel=2e-4 if key.endswith(coarse) else 5e-6)
             for key, value in expected.items() if isinstance(value, float)}  # fmt: skip
    assert found == {**expected, **close}


def output(warmup: str = "count=1 curr=900", run: str = "count=2 first=800 curr=810 min=800 max=810 avg=805 std=5", *,
           before: str = "", average: str = "805") -> str:  # fmt: skip
    timings = f"Init: 5, First inference: 900, Warmup (avg): 900, Inference (avg): {average}"
    return f"STARTING!\n{before}{warmup}\n\n{run}\n\nInference timings in us: {timings}\n"


def test_equal_calls_are_printed_as_one_number():
    record = parse_output(output(run="count=30 curr=70(all same) p5=70 median=70 p95=70", average="70"), "x")
    run = record.inference
    assert (run.count, run.avg_us, run.min_us, run.max_us, run.std_us, run.median_us) == (30, 70, 70, 70, 0, 70)
    assert (record.warmup.count, record.warmup.avg_us, record.warmup.p95_us) == (1, 900, 900)
    old = parse_output(output(run="count=30 curr=70(all same)", average="70"), "x")
    assert old.inference == run


def test_a_run_without_warmup():
    text = output(warmup="count=0").replace("Warmup (avg): 900", "Warmup (avg): nan")
    record = parse_output(text, "x")
    assert (record.warmup, record.inference.count) == (None, 2)


@pytest.mark.parametrize(
    ("said", "xnnpack", "delegates"),
    [
        ("Use xnnpack: [0]\n", False, ()),
        ("Use xnnpack: [1]\n", True, ()),
        ("INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n", True, ()),
        ("Use xnnpack: [1]\nExplicitly applied XNNPACK delegate, and the model graph will be completely executed by "
         "the delegate.\n", True, ()),
        ("Use xnnpack: [1]\nINFO: Created TensorFlow Lite XNNPACK delegate for CPU.\nThough XNNPACK delegate is "
         "explicitly applied, the model graph will not be executed by the delegate.\n", False, ()),
        ("Use gpu: [1]\nExplicitly applied GPU delegate, and the model graph will be completely executed by the "
         "delegate.\n", None, ("GPU",)),
    ],
)  # fmt: skip
def test_what_ran_the_graph_counts_not_what_was_asked_for(said, xnnpack, delegates):
    record = parse_output(output(before=said), "x")
    assert (record.xnnpack, record.delegates) == (xnnpack, delegates)


def test_warnings_and_errors_that_it_went_on_after_are_kept():
    said = "WARN: Failed to get the input model file size.\n"
    said += "ERROR: ModifyGraphWithDelegate is disallowed when graph is immutable.\n"
    assert parse_output(output(before=said), "x").warnings == (
        "Failed to get the input model file size.",
        "ModifyGraphWithDelegate is disallowed when graph is immutable.",
    )


WHOLE = "expected the whole output of one run of benchmark_model, or the file of its --result_file_path"
FAILURES = {
    "a mistyped flag": (
        output(before="WARN: Unconsumed cmdline flags: --num_thread=1\n"),
        'x: benchmark_model ignored what it does not know, --num_thread: did you mean "num_threads"? '
        "Correct the flag, or use a newer build of the tool",
    ),
    "flags with values apart": (
        "STARTING!\nUnconsumed cmdline flags: --graph test --zzz=4\n",
        "x: benchmark_model ignored what it does not know, --graph, --zzz. "
        "Correct the flag, or use a newer build of the tool",
    ),
    "the other tool of this name": (
        "INFO: STARTING!\nWARN: Unconsumed cmdline flags: --use_xnnpack=true\n",
        'x: benchmark_model ignored what it does not know, --use_xnnpack. '
        "LiteRT's tool for CompiledModel has the same name, and not this flag: take that of TFLite's interpreter, or "
        "save the outputs and name them in baseline.results",
    ),
    "a model that is not there": (
        "INFO: STARTING!\nERROR: Could not open '/m.tflite'.\n"
        "ERROR: Failed to load model /m.tflite\nERROR: Benchmarking failed.\n",
        "x: benchmark_model failed: Could not open '/m.tflite'.",
    ),
    "a failed run without prefixes": (
        "STARTING!\nFailed to load model /m.tflite\nBenchmarking failed.\n",
        "x: benchmark_model failed: Failed to load model /m.tflite",
    ),
    "a flag that is no number": (
        "INFO: STARTING!\nERROR: Failed to parse flag 'num_runs' against argv '--num_runs=x'\n"
        "ERROR: usage: ./benchmark_model\n"
        "ERROR: Benchmarking failed.\n",
        "x: benchmark_model failed: Failed to parse flag 'num_runs' against argv '--num_runs=x'",
    ),
    "a run that failed after its statistics": (
        output() + "ERROR: Benchmarking failed.\n",
        "x: benchmark_model failed: Benchmarking failed.",
    ),
    "a delegate that cannot be applied": (
        "STARTING!\nUse xnnpack: [1]\nXNNPACK delegate created.\n"
        "Failed to apply XNNPACK delegate.\nBenchmarking failed.\n",
        "x: benchmark_model failed: Failed to apply XNNPACK delegate. "
        "Measure without the delegate, or use a build that has it for this model",
    ),
    "a delegate that cannot be applied, and why": (
        "INFO: STARTING!\nERROR: Node number 3 (CONV_2D) failed to prepare.\n"
        "ERROR: Failed to apply XNNPACK delegate.\n",
        "x: benchmark_model failed: Failed to apply XNNPACK delegate (Node number 3 (CONV_2D) failed to prepare). "
        "Measure without the delegate, or use a build that has it for this model",
    ),
    "a dry run": (
        "Run w/o invoking kernels: [1]\ncount=0\n\ncount=0\n\n"
        "Inference timings in us: Init: 5, First inference: 0, Warmup (avg): nan, Inference (avg): nan\n",
        "x: a dry run, which measures nothing: run benchmark_model without --dry_run",
    ),
    "another program's output": ("hello\n", f"x: has no inference statistics: {WHOLE}"),
    "an output that ends while loading": (
        CURRENT[: CURRENT.index("INFO: Running")],
        f"x: ends before inference statistics: {WHOLE}",
    ),
    "an output that ends after the warm-up": (
        CURRENT[: CURRENT.index("INFO: count=30")],
        f"x: ends after the warm-up: {WHOLE}",
    ),
    "an output cut off within a line": (
        CURRENT[: CURRENT.index(" max=1251931")],
        f'x: cut off, or changed, in the line "count=30 first=1241669 curr=1249224 min=1233931": {WHOLE}',
    ),
    "an output without its summary": (
        CURRENT[: CURRENT.index("INFO: Inference timings")],
        f"x: ends after the statistics, before the summary line: {WHOLE}",
    ),
    "a summary cut off within its last number": (
        CURRENT[: CURRENT.index("24318e+06\nINFO: Note") + 3],
        f"x: the statistics and the summary are not of the same run: {WHOLE}",
    ),
    "a summary cut off before its last number": (
        CURRENT[: CURRENT.index(", Inference (avg)")],
        "x: no average of the inference in the line "
        f'"Inference timings in us: Init: 21847, First inference: 1391…": {WHOLE}',
    ),
    "two runs": (output() + output(), "x: holds 2 runs: save each run in a file of its own, one for each round"),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILURES)
def test_what_is_no_result_says_why(case):
    text, message = FAILURES[case]
    with pytest.raises(BaselineError) as caught:
        parse_output(text, "x")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", f"{{path}} is empty: {WHOLE}"),
        (
            b"\x12\x03\x00",
            "{path}: not a result of benchmark_model, or cut off: expected the file of its --result_file_path, "
            "or its output as text",
        ),
        ((GOLDEN / "result.pb").read_bytes()[:40], "{path}: not a result of benchmark_model, or cut off: expected the "
         "file of its --result_file_path, or its output as text"),
        (b"\x12\x05\x0d\x00\x00\x00\x00\x22\x02\x10\x00",
         "{path}: nothing was measured: run benchmark_model without --dry_run"),
        (None, "cannot read the baseline's result {path}: No such file or directory"),
    ],
    ids=["empty", "another proto", "cut off", "dry run", "absent"],
)  # fmt: skip
def test_a_file_that_holds_no_result(tmp_path, data, message):
    path = tmp_path / "round1"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(BaselineError) as caught:
        read_result(path)
    assert str(caught.value) == message.format(path=path)
