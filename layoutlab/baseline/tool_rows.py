"""What a table says of a baseline that `benchmark_model` measured, from the events of its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def tool_flags(taken: Sequence[dict[str, Any]], rounds: int) -> tuple[str, ...]:
    """The flags of the baseline's row, from the events of all samples; none when LiteRT measured it."""
    rounds_taken = _by_tool(taken)
    if not rounds_taken:
        return ()
    count = len({event["round"] for event in rounds_taken})
    flags = ["baseline by benchmark_model", *([f"{count} of {rounds} rounds"] if count < rounds else [])]
    results = [event["benchmark_model"] for event in rounds_taken]
    if any(result["xnnpack"] is False for result in results):
        flags.append("XNNPACK off")
    delegates = dict.fromkeys(name for result in results for name in result["delegates"])
    return (*flags, *(f"{name} delegate" for name in delegates))


def saved_before(taken: Sequence[dict[str, Any]]) -> bool:
    """Whether the baseline's rounds are of another time than the variants'."""
    return any("saved" in event for event in _by_tool(taken))


def baseline_runtime(reference: str, taken: Sequence[dict[str, Any]]) -> str:
    """What measured the baseline; `reference` is what computed the outputs that the variants' are compared with."""
    rounds_taken = _by_tool(taken)
    if not rounds_taken:
        return reference
    runtimes = " and ".join(dict.fromkeys(event["runtime"] for event in rounds_taken))
    calls = sorted(event["benchmark_model"]["inference"]["count"] or 0 for event in rounds_taken)
    calls_text = f"{calls[0]} to {calls[-1]}" if calls[0] != calls[-1] else f"{calls[0]}"
    average = f"the average of {calls_text} calls" if calls[0] else "one average"
    return f"{runtimes}; {average} a round, for it reports no single calls; outputs by {reference}"


def _by_tool(taken: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in taken if "benchmark_model" in event]
