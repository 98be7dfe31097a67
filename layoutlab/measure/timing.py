"""The one way anything is timed here: variants and TFLite go through the same function."""

from __future__ import annotations

import time
from collections.abc import Callable


def sample(invoke: Callable[[], None], *, repeats: int, min_repeat_ms: float, warmup_ms: float) -> list[float]:
    """`repeats` samples of the milliseconds one call takes.

    Calls are repeated for `warmup_ms` first (at least once); each sample is then the mean over as many calls as
    fill `min_repeat_ms`, a number fixed after the warm-up so that all samples are alike.
    """
    warmup_calls, warmup_s = _call_for(invoke, warmup_ms / 1e3)
    calls = max(1, round(min_repeat_ms / 1e3 / (warmup_s / warmup_calls)))
    samples_ms = []
    for _ in range(repeats):
        started = time.perf_counter()
        for _ in range(calls):
            invoke()
        samples_ms.append((time.perf_counter() - started) * 1e3 / calls)
    return samples_ms


def _call_for(invoke: Callable[[], None], seconds: float) -> tuple[int, float]:
    """Call until `seconds` have passed; the number of calls and the time they took, the first left out.

    The first call pays for page faults and lazy initialisation, so it would distort the rate; when there is
    no other, it has to do.
    """
    started = time.perf_counter()
    invoke()
    second = time.perf_counter()
    calls = 0
    while time.perf_counter() - started < seconds:
        invoke()
        calls += 1
    ended = time.perf_counter()
    return (calls, ended - second) if calls else (1, second - started)
