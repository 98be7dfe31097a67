"""Whether figures of several runs can stand next to each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from layoutlab.compare.results import Result
from layoutlab.errors import UsageError
from layoutlab.spec.target import format_target

# The seed decides the order of rows alone, and repeated rounds are flagged where they matter.
_NOT_PROTOCOL = ("seed", "retries")
_CORE = "core: "


def require_comparable(results: Sequence[Result], over_time: bool = False, models: bool = False) -> None:
    """Raises UsageError with everything that differs and must not.

    `over_time` target and protocol may differ, and with `models` the model, whose name makes the results' labels.
    """
    facts = {**({} if models else _MODEL), **_PLACE, **({} if over_time else _SAME_RUN)}
    problems = [line for name, fact in facts.items() if (line := _difference(name, fact, results))]
    if len({result.simulated for result in results}) == 1:
        problems += _versions(True, results)
    if problems:
        raise UsageError("these results cannot stand in one table:\n" + "\n".join(f"  {line}" for line in problems))


def differences(results: Sequence[Result], over_time: bool = False) -> list[str]:
    """What differs and may, in words: versions, and over time target, protocol and tuning."""
    facts = {**_NOTED, **(_SAME_RUN if over_time else {})}
    lines = [line for name, fact in facts.items() if (line := _difference(name, fact, results))]
    return [*_versions(False, results), *lines]


def _difference(name: str, fact: Callable[[Result], str], results: Sequence[Result]) -> str | None:
    found = [(result, fact(result)) for result in results]
    if len({text for _, text in found}) == 1:
        return None
    labels = _labels(results)
    return f"{name} differs: " + "; ".join(
        f"{label} has {text}" for label, (_, text) in zip(labels, found, strict=True)
    )


def _labels(results: Sequence[Result]) -> list[str]:
    specs = [result.spec for result in results]
    return specs if len(set(specs)) == len(specs) else [str(result.path) for result in results]


def _protocol(result: Result) -> str:
    if result.simulated:
        return "one counted inference"
    measure = {name: value for name, value in result.data["measure"].items() if name not in _NOT_PROTOCOL}
    return _named(measure)


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)


def _version(name: str) -> Callable[[Result], str]:
    return lambda result: str(result.run["versions"].get(name, "none"))


def _versions(core: bool, results: Sequence[Result]) -> list[str]:
    """Each version that differs; `core` are those of a simulated core."""
    names = dict.fromkeys(name for result in results for name in result.run["versions"])
    found = (_difference(name, _version(name), results) for name in names if name.startswith(_CORE) == core)
    return [line for line in found if line]


def _tuning(result: Result) -> str:
    tuning = result.data["tuning"]
    return _named({name: tuning.get(name) for name in ("trials", "search", "cost_model", "pack_weights")})


_MODEL: dict[str, Callable[[Result], str]] = {
    "model": lambda result: f"{result.run['model']} (sha256 {result.run['model_sha256'][:12]})",
}
_PLACE: dict[str, Callable[[Result], str]] = {
    "batch": lambda result: str(result.run.get("batch")),
    "device": lambda result: f"{result.run['device']}{' (simulated)' if result.simulated else ''}",
    "threads": lambda result: str(result.run["threads"]),
}
_SAME_RUN: dict[str, Callable[[Result], str]] = {
    "target": lambda result: format_target(result.run["target"]),
    "protocol": _protocol,
    "baseline": lambda result: str(result.data["baseline_runtime"]).split(";")[0],
}
_NOTED: dict[str, Callable[[Result], str]] = {
    "tuning": _tuning,
}
