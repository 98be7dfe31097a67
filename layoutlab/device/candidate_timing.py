"""How a tuning candidate is timed, on this machine and on any other device alike.

Only numpy and TVM's runtime are imported here, and TVM not before something is timed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import tvm

# Between two calls with cold caches there is nothing to see; more of them than this add nothing to a median.
_MOST_COLD_CALLS = 200


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How a candidate is timed: after a warm-up call `repeats` times for at least `min_repeat_ms`; the median counts.

    With `cold_cache` each repeat is one call, before which all tensors but the first leave the caches: within a
    network a function finds its input there, which the one before it wrote, but not its weights, which were last read
    one inference ago. As many calls are timed as fill `repeats` times `min_repeat_ms`, at least `repeats`.
    """

    repeats: int
    min_repeat_ms: int
    cold_cache: bool

    @property
    def timeout_s(self) -> float:
        """What a candidate may take in all. Repeats get longer by steps, up to three times what was asked for."""
        return 30.0 + 4 * self.repeats * self.min_repeat_ms / 1e3


def time_candidate(library: str, arguments: Sequence[tuple[str, Sequence[int]]], timing: Timing) -> float:
    """Median seconds of one call of `main` in the shared library at the path `library`.

    `arguments` are (dtype, shape) of each tensor; they are filled with `random_values`.
    """
    import tvm

    module = tvm.runtime.load_module(library)
    tensors = [tvm.runtime.tensor(random_values(dtype, tuple(shape)), tvm.cpu()) for dtype, shape in arguments]
    return statistics.median(samples_s(module, tensors, timing, tvm.cpu()))


def samples_s(
    module: tvm.runtime.Module, tensors: list[Any], timing: Timing, device: tvm.runtime.Device
) -> list[float]:
    """Seconds of single calls of `main` in a module, which may be on a device over RPC, as its tensors are."""
    return (_cold_samples_s if timing.cold_cache else _warm_samples_s)(module, tensors, timing, device)


def random_values(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Seeded values without zeros: zeros (and denormals) make some candidates look faster than they are."""
    generator = np.random.default_rng(1)
    if dtype.startswith("float"):
        return generator.uniform(0.1, 1.0, shape).astype(dtype)
    return generator.integers(1, 100, shape).astype(dtype)


def _warm_samples_s(
    module: tvm.runtime.Module, tensors: list[Any], timing: Timing, device: tvm.runtime.Device
) -> list[float]:
    evaluate = module.time_evaluator(
        "main", device, number=1, repeat=timing.repeats, min_repeat_ms=timing.min_repeat_ms
    )
    return list(evaluate(*tensors).results)


def _cold_samples_s(
    module: tvm.runtime.Module, tensors: list[Any], timing: Timing, device: tvm.runtime.Device
) -> list[float]:
    def evaluator(calls: int) -> Callable[..., Any]:
        return module.time_evaluator(
            "main", device, number=1, repeat=calls, min_repeat_ms=0, f_preproc="cache_flush_cpu_non_first_arg"
        )

    (once_s,) = evaluator(1)(*tensors).results
    return list(evaluator(cold_calls(timing, once_s))(*tensors).results)


def cold_calls(timing: Timing, once_s: float) -> int:
    """How many calls are timed with cold caches when one takes `once_s` seconds."""
    fill = math.ceil(timing.repeats * timing.min_repeat_ms / 1e3 / max(once_s, 1e-9))
    return max(timing.repeats, min(fill, _MOST_COLD_CALLS))
