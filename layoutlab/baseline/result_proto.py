"""The file that `benchmark_model --result_file_path` writes: a `tflite.tools.benchmark.BenchmarkResult`.

No package ships the message, so its descriptor is built here from the published schema,
`tflite/tools/benchmark/proto/benchmark_result.proto` in the LiteRT sources: names, types and numbers of its fields.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from layoutlab.baseline.result import BenchmarkResult, RunStats
from layoutlab.errors import BaselineError

_PACKAGE = "tflite.tools.benchmark"
# Fields by message, in the order of their numbers, which count from 1.
_MESSAGES = {
    "LatencyMetrics": [
        (f"{name}_ms", "float")
        for name in ("avg", "min", "max", "stddev", "median", "p5", "p95", "init", "first_inference", "average_warm_up")
    ],
    "MemoryMetrics": [("init_footprint_kb", "int64"), ("overall_footprint_kb", "int64"), ("peak_mem_mb", "float")],
    "MiscMetrics": [
        ("model_size_mb", "float"),
        ("num_runs", "int32"),
        ("num_warmup_runs", "int32"),
        ("model_throughput_in_mb_per_sec", "float"),
    ],
    "BenchmarkResult": [
        ("name", "string"),
        ("latency_metrics", "LatencyMetrics"),
        ("memory_metrics", "MemoryMetrics"),
        ("misc_metrics", "MiscMetrics"),
    ],
}


def read_proto(data: bytes, source: str) -> BenchmarkResult:
    """The record of a result proto; `source` is how messages call it.

    Raises BaselineError when this is no such proto, is cut off, or holds no measured run.
    """
    from google.protobuf.message import DecodeError

    message = message_class()()
    try:
        message.ParseFromString(data)
    except DecodeError:
        message.Clear()
    latency, memory, misc = (_fields(getattr(message, f"{part}_metrics")) for part in ("latency", "memory", "misc"))
    if not (latency or memory or misc) or not misc:
        raise BaselineError(
            f"{source}: not a result of benchmark_model, or cut off: expected the file of its --result_file_path, "
            "or its output as text"
        )
    if not misc.get("num_runs") or not latency.get("avg_ms"):
        raise BaselineError(f"{source}: nothing was measured: run benchmark_model without --dry_run")
    return _record(latency, memory, misc)


def _record(latency: dict[str, Any], memory: dict[str, Any], misc: dict[str, Any]) -> BenchmarkResult:
    names = {f"{name}_us": name for name in ("avg", "min", "max", "median", "p5", "p95")} | {"std_us": "stddev"}
    warmup_ms = latency.get("average_warm_up_ms")
    return BenchmarkResult(
        inference=RunStats(
            count=misc["num_runs"],
            **{us: _times(latency.get(f"{name}_ms"), 1e3) for us, name in names.items()},  # type: ignore[arg-type]
        ),
        warmup=RunStats(count=misc.get("num_warmup_runs"), avg_us=warmup_ms * 1e3) if warmup_ms else None,
        init_us=_times(latency.get("init_ms"), 1e3),
        first_inference_us=_times(latency.get("first_inference_ms"), 1e3),
        init_memory_mb=_times(memory.get("init_footprint_kb"), 1 / 1024),
        overall_memory_mb=_times(memory.get("overall_footprint_kb"), 1 / 1024),
        peak_memory_mb=memory.get("peak_mem_mb"),
        model_mb=misc.get("model_size_mb"),
    )


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _fields(message: Any) -> dict[str, Any]:
    """What the message says; a float has seven digits, and those of its conversion are no more than noise."""
    return {
        field.name: float(f"{value:.7g}") if isinstance(value, float) else value
        for field, value in message.ListFields()
    }


@cache
def message_class() -> Any:
    """The class of the message."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="benchmark_result.proto", package=_PACKAGE, syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, 1):
            declared = message.field.add(name=field, number=number, label=_field_constant("LABEL_OPTIONAL"))
            if kind in _MESSAGES:
                declared.type, declared.type_name = _field_constant("TYPE_MESSAGE"), f".{_PACKAGE}.{kind}"
            else:
                declared.type = _field_constant(f"TYPE_{kind.upper()}")
    # A pool of its own: another package may bring the same message into the common one.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.BenchmarkResult"))


def _field_constant(name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    return getattr(FieldDescriptorProto, name)
