"""How long a run of a spec may take, from what past runs on such a device took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from layoutlab.device.choose import why_not_simulated
from layoutlab.errors import StoreError
from layoutlab.progress import duration
from layoutlab.spec.load import LoadedSpec
from layoutlab.spec.models import MeasureSpec, Spec
from layoutlab.store import read_events

# Of fewer trials the time is mostly that of starting.
_FEWEST_TRIALS = 20


@dataclass(frozen=True, kw_only=True)
class Past:
    """What single jobs of past runs took, in seconds: a trial, a build, and a round beyond its protocol's own time."""

    trial_s: Sequence[float]
    build_s: Sequence[float]
    round_s: Sequence[float]
    runs: int


def least_s(measure: MeasureSpec) -> float:
    """Seconds that one round of one row takes by its protocol alone."""
    return (measure.warmup_ms + measure.repeats * measure.min_repeat_ms) / 1e3


def estimate_text(loaded: LoadedSpec, results: Path) -> str:
    """A line that says how long a run from nothing takes, and by what that is known."""
    spec = loaded.spec
    past = find_past(loaded, results)
    if not past.runs:
        return f"no estimate of its time: no past run on such a device under {results / 'runs'}"
    parts, total_s, unknown = [], 0.0, []
    tuned, count = sum(variant.tune for variant in spec.variants), len(spec.variants)
    counted = _is_counted(spec)
    rounds = (1 if counted else spec.measure.rounds) * (count + 1)
    by_protocol_s = 0.0 if counted else least_s(spec.measure)
    for name, times, number, more_s in (
        (f"tuning {tuned} x {spec.tuning.trials} trials", past.trial_s, tuned * spec.tuning.trials, 0.0),
        (f"building {count}", past.build_s, count, 0.0),
        (f"{rounds} {'counts' if counted else 'rounds'} of one row", past.round_s, rounds, by_protocol_s),
    ):
        if not number:
            continue
        if not times:
            unknown.append(name)
            continue
        seconds = number * (median(times) + more_s)
        parts.append(f"{name} {duration(seconds)}")
        total_s += seconds
    runs = f"{past.runs} past run{'s' if past.runs > 1 else ''} on such a device"
    lacking = f"; unknown: {', '.join(unknown)}" if unknown else ""
    return f"from nothing about {duration(total_s)}, by {runs}: {', '.join(parts)}{lacking}"


def find_past(loaded: LoadedSpec, results: Path) -> Past:
    """Past runs on such a device: those of the same model, or all when there are none of it."""
    model = loaded.model_path.name if loaded.model_path else loaded.spec.model.build
    found = [events for events in _runs(results / "runs") if _is_alike(events[0], loaded.spec)]
    same = [events for events in found if str(model) in str(events[0]["model"])]
    chosen = same or found
    timed = [event for events in chosen for event in events if "took_s" in event]
    built = [event for event in timed if event["kind"] == "built"]
    return Past(
        trial_s=[
            event["artifact"]["tune_s"] / event["new_trials"]
            for event in built
            if event["new_trials"] >= _FEWEST_TRIALS
        ],
        build_s=[event["took_s"] - event["artifact"]["tune_s"] for event in built],
        round_s=[
            event["took_s"] - (0.0 if events[0]["simulated"] else least_s(_measure(events[0])))
            for events in chosen
            for event in events
            if event["kind"] == "samples" and "took_s" in event
        ],
        runs=sum(any("took_s" in event for event in events) for events in chosen),
    )


def _runs(folder: Path) -> list[list[dict[str, Any]]]:
    """The events of each past run, its own `run` event first."""
    runs: list[list[dict[str, Any]]] = []
    for path in sorted(folder.glob("*/events.jsonl")):
        begun = False
        for event in _readable(path):
            if event["kind"] in ("run", "tune", "aa"):
                begun = event["kind"] == "run"
                if begun:
                    runs.append([])
            if begun:
                runs[-1].append(event)
    return runs


def _readable(path: Path) -> list[dict[str, Any]]:
    try:
        return read_events(path)
    except StoreError:
        # Whoever runs that spec is told; an estimate does without it.
        return []


def _measure(run: dict[str, Any]) -> MeasureSpec:
    return MeasureSpec.model_validate(run["spec"]["measure"])


def _is_alike(run: dict[str, Any], spec: Spec) -> bool:
    """Whether the run was on a device such as the spec's: here, on the simulated core, or at the same address."""
    if spec.device.address is not None:
        return bool(run.get("rpc")) and run["spec"]["device"] == spec.device.model_dump(mode="json")
    return not run.get("rpc") and bool(run["simulated"]) == _is_counted(spec)


def _is_counted(spec: Spec) -> bool:
    if spec.device.address is not None or spec.device.on == "host":
        return False
    return spec.device.on == "kryo" or why_not_simulated(spec) is None
