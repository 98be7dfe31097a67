"""How the rounds of measured rows were taken and in what state the machine was, as data and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from layoutlab.measure.android import THERMAL_STATUS
from layoutlab.measure.conditions import hottest_cpu_c
from layoutlab.measure.cores import core_ranges, name_cores
from layoutlab.measure.stats import trimmed

_UNKNOWN = "not readable"
# Disturbed rounds of a row that are named below the table; table.json has all.
_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """How a row's rounds were taken.

    `cores` are those the device pinned it to, None where it was not pinned. `waited_s` is the longest cool-down of a
    round, `still_hot` counts the rounds that did not come down to `cooldown_until_c`, None where no CPU temperature
    was readable. `disturbed` has the reasons of each disturbed round, by its number from 1.
    """

    threads: int
    cores: tuple[int, ...] | None
    warmup_ms: int
    cooldown_ms: int
    cooldown_until_c: float | None
    rounds: int
    repeats: int
    waited_s: float
    still_hot: int | None
    disturbed: dict[int, tuple[str, ...]]

    @property
    def doubtful(self) -> bool:
        """Whether more rounds were disturbed than a ratio can leave out."""
        return len(self.disturbed) > trimmed(self.rounds)

    @property
    def flag(self) -> str | None:
        """What tables say of a row that was disturbed."""
        return f"disturbed {len(self.disturbed)} of {self.rounds} rounds" if self.disturbed else None


def last_taken(taken: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The samples events that count: the last of each row and round."""
    return list({(event["row"], event.get("round")): event for event in taken}.values())


def rounds_of(row: str, taken: Sequence[dict[str, Any]], measure: Mapping[str, Any], threads: int) -> Rounds:
    """How `row`'s rounds were taken; `taken` are the samples events that count, `measure` is the spec's."""
    events = [event for event in taken if event["row"] == row]
    cools = [cooled for event in events if (cooled := event.get("cooldown"))]
    reached = [cooled.get("reached") for cooled in cools]
    pinned = next((event["cores"] for event in events if event.get("cores") is not None), None)
    return Rounds(
        threads=threads,
        cores=None if pinned is None else tuple(pinned),
        warmup_ms=measure["warmup_ms"],
        cooldown_ms=measure["cooldown_ms"],
        cooldown_until_c=measure["cooldown_until_c"],
        rounds=len(events),
        repeats=measure["repeats"],
        waited_s=max((cooled["waited_s"] for cooled in cools), default=0.0),
        still_hot=None if None in reached else reached.count(False),
        disturbed={event["round"] + 1: tuple(event["disturbed"]) for event in events if event.get("disturbed")},
    )


def rounds_record(rounds: Rounds | None) -> dict[str, object]:
    """For table.csv."""
    if rounds is None:
        return dict.fromkeys(
            ("threads", "cores", "warmup_ms", "cooldown_ms", "cooldown_until_c", "repeats", "rounds_disturbed")
        )
    return {
        "threads": rounds.threads,
        "cores": "not pinned" if rounds.cores is None else core_ranges(rounds.cores),
        "warmup_ms": rounds.warmup_ms,
        "cooldown_ms": rounds.cooldown_ms,
        "cooldown_until_c": rounds.cooldown_until_c,
        "repeats": rounds.repeats,
        "rounds_disturbed": len(rounds.disturbed),
    }


def rounds_notes(rows: Mapping[str, Rounds]) -> list[str]:
    """In words, below the table: what each round was, what cool-downs came to, and which rounds were disturbed."""
    if not rows:
        return []
    some = next(iter(rows.values()))
    cores = sorted({_pinning(rounds.cores) for rounds in rows.values()})
    threads = f"{some.threads} thread{'s' if some.threads > 1 else ''}"
    notes = [
        f"each round: {threads}, {' or '.join(cores)}, {_cool_down(some)}, {some.warmup_ms} ms of warm-up",
    ]
    notes += _heat_notes(rows)
    notes += [note for name, rounds in rows.items() for note in _disturbed_notes(name, rounds)]
    doubtful = [name for name, rounds in rows.items() if rounds.doubtful]
    if doubtful:
        notes.append(
            f"disturbed in more rounds than the statistics can leave out, so without a verdict: {', '.join(doubtful)}. "
            "`layoutlab run --again` takes all rounds anew: give it a machine that does nothing else"
        )
    return notes


def _pinning(cores: tuple[int, ...] | None) -> str:
    if cores is None:
        return "not pinned to cores"
    return f"pinned to {name_cores(cores)}"


def _cool_down(rounds: Rounds) -> str:
    parts = []
    if rounds.cooldown_ms:
        parts.append(f"of {rounds.cooldown_ms} ms")
    if rounds.cooldown_until_c is not None:
        parts.append(f"until {rounds.cooldown_until_c:g} °C")
    return f"cool-down {' and '.join(parts)}" if parts else "no cool-down"


def _heat_notes(rows: Mapping[str, Rounds]) -> list[str]:
    until = next(iter(rows.values())).cooldown_until_c
    if until is None:
        return []
    if any(rounds.still_hot is None for rounds in rows.values()):
        return ["no CPU temperature was readable, so the cool-down waited for none"]
    hot, everything = sum(rounds.still_hot or 0 for rounds in rows.values()), sum(r.rounds for r in rows.values())
    waited_s = max(rounds.waited_s for rounds in rows.values())
    reached = f"{hot} of {everything} rounds still above {until:g} °C" if hot else "all rounds were cool enough"
    return [f"cool-down: waited up to {waited_s:.0f} s, {reached}"]


def _disturbed_notes(name: str, rounds: Rounds) -> list[str]:
    if not rounds.disturbed:
        return []
    named = [f"round {number}: {', '.join(why)}" for number, why in sorted(rounds.disturbed.items())]
    more = f"; and {len(named) - _NAMED} more rounds" if len(named) > _NAMED else ""
    return [f"{name} was disturbed: {'; '.join(named[:_NAMED])}{more}"]


def summarise_conditions(taken: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Extremes of the machine's state over all rounds; None where it could not be read.

    Governors and frequencies are those of the used cores, `capped` the cores whose frequency limit (`limit_khz`, the
    lowest seen) was below what they can do (`max_khz`), temperatures those of the hottest CPU zone.
    """
    states = [(state, event.get("cores")) for event in taken for state in event.get("conditions", ())]
    cores = [core for state, used in states for core in _used(state, used)]
    frequencies = [int(core["frequency_khz"]) for core in cores if core.get("frequency_khz")]
    batteries = [state["battery"] for state, _ in states if state.get("battery")]
    hottest = [hottest_cpu_c(state.get("temperatures_c", ())) for state, _ in states]
    return {
        "others_cores_max": max(
            (event["others_cores"] for event in taken if event.get("others_cores") is not None), default=None
        ),
        "load_1min_max": max((s["load_1min"] for s, _ in states if s.get("load_1min") is not None), default=None),
        "governors": sorted({core["governor"] for core in cores if core.get("governor")}) or None,
        "frequency_khz": _extremes(frequencies),
        "capped": _capped(cores),
        "temperature_c": _extremes([degrees for degrees in hottest if degrees is not None]),
        "thermal_status_max": max(
            (s["thermal_status"] for s, _ in states if s.get("thermal_status") is not None), default=None
        ),
        "battery_percent": _extremes([b["level_percent"] for b in batteries if "level_percent" in b]),
        "charging": sorted({b["charging"] for b in batteries if "charging" in b}) or None,
    }


def _used(state: Mapping[str, Any], used: Sequence[int] | None) -> list[dict[str, Any]]:
    """The used cores of a state. Those of older records have the first core only, beside the load."""
    if "cores" not in state:
        return [{"governor": state.get("governor"), "frequency_khz": state.get("frequency_khz")}]
    return [core for core in state["cores"] if used is None or core["core"] in used]


def _capped(cores: Sequence[dict[str, Any]]) -> list[dict[str, int]]:
    lowest: dict[int, dict[str, int]] = {}
    for core in cores:
        limit, most = core.get("limit_khz"), core.get("max_khz")
        if limit and most and limit < most and limit < lowest.get(core["core"], {"limit_khz": most})["limit_khz"]:
            lowest[core["core"]] = {"core": core["core"], "limit_khz": limit, "max_khz": most}
    return [lowest[core] for core in sorted(lowest)]


def _extremes(values: Sequence[Any]) -> list[Any] | None:
    return [min(values), max(values)] if values else None


def conditions_text(conditions: Mapping[str, Any]) -> str:
    """One line for the table's footer."""
    parts = [
        *_others_text(conditions.get("others_cores_max")),
        f"load up to {_known(conditions['load_1min_max'])}",
        f"governor {', '.join(conditions['governors'] or [_UNKNOWN])}",
        f"frequency {_range(conditions['frequency_khz'], 'kHz')}",
        *_capped_text(conditions["capped"]),
        f"CPU temperature {_range(conditions['temperature_c'], '°C')}",
        f"thermal status {_status(conditions['thermal_status_max'])}",
    ]
    if conditions["battery_percent"]:
        parts.append(f"battery {_range(conditions['battery_percent'], '%')}{_charging(conditions['charging'])}")
    return f"conditions: {', '.join(parts)}"


def _others_text(cores: float | None) -> list[str]:
    return [] if cores is None else [f"other processes used up to {cores:g} cores"]


def _known(value: object) -> str:
    return _UNKNOWN if value is None else str(value)


def _range(extremes: Sequence[float] | None, unit: str) -> str:
    if extremes is None:
        return _UNKNOWN
    low, high = (f"{value:.0f}" for value in extremes)
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def _capped_text(capped: Sequence[Mapping[str, int]]) -> list[str]:
    same: dict[str, list[int]] = {}
    for core in capped:
        same.setdefault(f"capped at {core['limit_khz']} of {core['max_khz']} kHz", []).append(core["core"])
    return [f"{name_cores(cores)} {text}" for text, cores in same.items()]


def _status(status: int | None) -> str:
    if status is None:
        return _UNKNOWN
    name = THERMAL_STATUS[status] if status < len(THERMAL_STATUS) else "unknown"
    return f"up to {status} ({name})" if status else f"{status} ({name})"


def _charging(states: Sequence[bool] | None) -> str:
    if not states:
        return ""
    return " and at times charging" if len(states) > 1 else " and charging" if states[0] else ", not charging"
