"""What one run of TFLite's `benchmark_model` reported, whichever form it was read from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RunStats:
    """Statistics of the calls of one phase (warm-up, or the measured run), in microseconds.

    `std_us` is the population's; percentiles are those of the tool, elements of the sorted calls. None: not said.
    """

    avg_us: float
    count: int | None = None
    first_us: float | None = None
    curr_us: float | None = None
    min_us: float | None = None
    max_us: float | None = None
    std_us: float | None = None
    median_us: float | None = None
    p5_us: float | None = None
    p95_us: float | None = None


@dataclass(frozen=True, kw_only=True)
class BenchmarkResult:
    """One run of the tool; None is what its form or version does not say.

    `xnnpack` is whether XNNPACK ran any of the graph, `delegates` are the others that were applied. Memory is the
    growth of the process since its start, and its peak, in MB; `model_mb` is the model file's size in millions of
    bytes. `warnings` are the tool's, and errors that it went on after.
    """

    inference: RunStats
    warmup: RunStats | None = None
    init_us: float | None = None
    first_inference_us: float | None = None
    init_memory_mb: float | None = None
    overall_memory_mb: float | None = None
    peak_memory_mb: float | None = None
    model_mb: float | None = None
    threads: int | None = None
    xnnpack: bool | None = None
    delegates: tuple[str, ...] = ()
    graph: str | None = None
    warnings: tuple[str, ...] = ()
