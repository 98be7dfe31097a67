"""The comparison as data: one row per variant and one for TFLite, rebuilt from a store's events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from layoutlab.baseline.tflite import BASELINE
from layoutlab.baseline.tool_rows import baseline_runtime, saved_before, tool_flags
from layoutlab.device.kryo.cycles import Totals, estimate
from layoutlab.engine.base import ONE_POINT, STOPPED_EARLY, Artifact, TaskCoverage, from_json
from layoutlab.errors import EXIT_OK, UsageError
from layoutlab.measure.numerics import Check
from layoutlab.measure.stats import Latency, Ratio, exact_ratio, latency, ratio
from layoutlab.report.pairs import Pair, exact_pairs, measured_pairs
from layoutlab.report.rounds import Rounds, last_taken, rounds_of, summarise_conditions
from layoutlab.spec.models import Spec, VariantSpec
from layoutlab.store import Store
from layoutlab.variants import compiled_otherwise, relay_flags


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a variant has no latency: the stage, a one-line cause, and the log to read."""

    stage: str
    cause: str
    log: str
    exit_code: int


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """A row's inference on a simulated core: milliseconds at its clock, and thousands of cycles by their cause.

    `counts` are the raw counts that the cycles are computed from, see `device.kryo.cycles`.
    """

    ms: float
    kcycles: float
    compute_kcycles: float
    memory_kcycles: float
    counts: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Function:
    """What one function of a variant takes on a simulated core; `share` is of the whole inference."""

    name: str
    share: float
    cost: Simulated


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the table; what is None is unknown or does not apply.

    A row has a `latency`, and the `rounds` it comes from, where it was measured, and a `simulated` cost where it was
    simulated.
    `speedup` is the untuned row's latency over this one's; `transforms` are the changes of layout in the graph, of
    which `transforms_free` leave memory as it is, and the others move `transform_bytes`; of the `ops`, those of
    `ops_one_point` have no record because there is nothing to choose, those of `ops_borrowed` have one of another
    device, model or version instead of their own.
    """

    name: str
    layouts: dict[str, int] | None = None
    tuned: bool = False
    latency: Latency | None = None
    rounds: Rounds | None = None
    simulated: Simulated | None = None
    ratio: Ratio | None = None
    speedup: float | None = None
    transforms: int | None = None
    transforms_free: int | None = None
    transform_bytes: int | None = None
    tasks: int | None = None
    tasks_tuned: int | None = None
    ops: int | None = None
    ops_tuned: int | None = None
    ops_one_point: int | None = None
    ops_borrowed: int | None = None
    trials: int | None = None
    trials_failed: int | None = None
    dequantised: bool = False
    tuning_ended: str | None = None
    check: Check | None = None
    failure: Failure | None = None
    flags: tuple[str, ...] = ()

    @property
    def ms(self) -> float | None:
        """The time of one inference, measured or simulated."""
        if self.latency:
            return self.latency.median_ms
        return self.simulated.ms if self.simulated else None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A finished comparison: its rows in the order of the spec, TFLite last, and everything to repeat it.

    All rows are from one device: measured, or simulated. `hooks` are the sha256 of the files that define users' own
    hooks, by variant; `functions` are those of each simulated variant, most cycles first, and sum to its row;
    `coverage` has the tuning tasks of each built variant, in execution order.
    `records` says of each variant whose records were not all made here where the others came from: `origin`, and
    `borrowed`, each set with the ops it served and its differences.
    `pairs` has the ratio of each two variants that have a latency.
    """

    name: str
    description: str | None
    rows: tuple[Row, ...]
    run: dict[str, Any]
    baseline_runtime: str
    tuning: dict[str, Any]
    check: dict[str, Any]
    measure: dict[str, Any]
    conditions: dict[str, Any]
    hooks: dict[str, str]
    samples_ms: dict[str, list[list[float]]]
    functions: dict[str, tuple[Function, ...]]
    coverage: dict[str, tuple[TaskCoverage, ...]]
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    pairs: tuple[Pair, ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether the figures are those of a simulated core."""
        return bool(self.run.get("simulated"))

    @property
    def exit_code(self) -> int:
        """The gravest exit code of a row: wrong outputs, then a failed variant, then fine."""
        return max((row.failure.exit_code for row in self.rows if row.failure), default=EXIT_OK)

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return {"format": 1, **asdict(self)}


def compare(store: Store) -> Comparison:
    """Build the comparison of the store's last run, with the spec as it was then.

    Raises UsageError when that run did not finish.
    """
    events = store.last_run()
    finished = next((event for event in events[::-1] if event["kind"] == "finished"), None)
    if finished is None:
        raise UsageError(f"{store.folder} holds no finished run: run the spec first")
    spec = Spec.model_validate(events[0]["spec"])
    taken = last_taken(store.all("samples", protocol=finished["protocol"]))
    simulated = {event["row"]: _simulated(event["counts"]) for event in taken if "counts" in event}
    counted = {event["row"]: event for event in taken if event.get("functions")}
    samples = {} if simulated else _by_row(taken, spec.measure.rounds)
    baseline_events = store.all("baseline")
    artifacts = built_artifacts(spec, store, events)
    rows = [_row(variant, artifacts.get(variant.name), events) for variant in spec.variants]
    rows.append(Row(name=BASELINE, flags=tool_flags(taken, spec.measure.rounds)))
    paired = not saved_before(taken)

    baseline = rounds_of(BASELINE, taken, spec.measure.model_dump(), events[0]["threads"])

    def with_time(row: Row) -> Row:
        if row.failure:
            return row
        if simulated:
            return _simulated_row(row, simulated)
        rounds = rounds_of(row.name, taken, spec.measure.model_dump(), events[0]["threads"])
        return _measured_row(row, samples, rounds, baseline, spec.measure.seed, paired)

    timed = list(map(with_time, rows))
    return Comparison(
        name=spec.name,
        description=spec.description,
        rows=tuple(_with_speedups(timed, next((v.name for v in spec.variants if not v.tune), None))),
        run={key: value for key, value in events[0].items() if key not in ("kind", "spec")},
        baseline_runtime=baseline_runtime(baseline_events[-1]["runtime"], taken),
        tuning=spec.tuning.model_dump(),
        check=spec.check.model_dump(),
        measure=spec.measure.model_dump(),
        conditions=summarise_conditions(taken),
        hooks={e["variant"]: e["hook_sha256"] for e in events if e["kind"] == "uses" and e.get("hook_sha256")},
        samples_ms=samples,
        functions={row.name: _functions(counted[row.name]) for row in rows if row.name in counted},
        coverage={name: artifact.tasks for name, artifact in artifacts.items()},
        records={name: found for name, built in artifacts.items() if (found := _sources(name, built, events))},
        pairs=_pairs(timed, samples, spec.measure.seed),
    )


def _by_row(taken: Sequence[dict[str, Any]], rounds: int) -> dict[str, list[list[float]]]:
    """Samples in ms by row and round, for the rows that have every round, and for the baseline those there are."""
    by_row: dict[str, dict[int, list[float]]] = {}
    for event in taken:
        by_row.setdefault(event["row"], {})[event["round"]] = event["samples_ms"]
    return {
        row: [found[number] for number in sorted(found)]
        for row, found in by_row.items()
        if len(found) == rounds or row == BASELINE
    }


def _simulated(counts: dict[str, Any]) -> Simulated:
    """Counts at today's price: changing the price of a miss needs no new run."""
    cycles = estimate(Totals(**counts))
    return Simulated(
        ms=cycles.ms,
        kcycles=cycles.kcycles,
        compute_kcycles=cycles.compute / 1e3,
        memory_kcycles=cycles.memory / 1e3,
        counts=counts,
    )


def _functions(event: dict[str, Any]) -> tuple[Function, ...]:
    whole = _simulated(event["counts"]).kcycles
    costs = [
        (found["name"], _simulated({key: value for key, value in found.items() if key != "name"}))
        for found in event["functions"]
    ]
    ordered = sorted(costs, key=lambda item: -item[1].kcycles)
    return tuple(Function(name=name, share=cost.kcycles / whole, cost=cost) for name, cost in ordered)


def built_artifacts(spec: Spec, store: Store, events: Sequence[dict[str, Any]]) -> dict[str, Artifact]:
    """What was built, by variant, in the order of the spec."""
    found = {}
    for variant in spec.variants:
        uses = _last(events, "uses", variant.name)
        built = store.find("built", key=uses["built"], budget=uses["budget"]) if uses else None
        if built:
            found[variant.name] = from_json(Artifact, built["artifact"])
    return found


def _row(variant: VariantSpec, artifact: Artifact | None, events: Sequence[dict[str, Any]]) -> Row:
    """The row without its time."""
    fields: dict[str, Any] = {"name": variant.name, "tuned": variant.tune}
    failed = _last(events, "failed", variant.name)
    if artifact:
        fields |= _artifact_fields(artifact)
    checked = _last(events, "checked", variant.name)
    if checked:
        fields["check"] = Check(**checked["check"])
    if failed:
        keys = ("stage", "cause", "log", "exit_code")
        return Row(**fields, failure=Failure(**{key: failed[key] for key in keys}))
    engine = relay_flags(variant) if artifact and artifact.built_by else []
    return Row(**fields, flags=(*engine, *compiled_otherwise(variant), *_flags(fields)))


def _sources(variant: str, artifact: Artifact | None, events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Where the variant's records came from, as far as that was not here."""
    uses = _last(events, "uses", variant)
    if uses is None or artifact is None:
        return {}
    served = [
        {**lent, "ops": sum(task.ops for task in artifact.tasks if task.borrowed == lent["source"])}
        for lent in uses.get("lent", ())
    ]
    found = {"origin": uses.get("origin"), "borrowed": [lent for lent in served if lent["ops"]]}
    return {name: value for name, value in found.items() if value}


def _pairs(rows: Sequence[Row], samples: dict[str, list[list[float]]], seed: int) -> tuple[Pair, ...]:
    variants = [row for row in rows if row.name != BASELINE]
    if not samples:
        return exact_pairs({row.name: row.simulated.ms for row in variants if row.simulated})
    measured = {row.name: row.rounds for row in variants if row.latency and row.rounds}
    doubtful = {name: rounds.doubtful for name, rounds in measured.items()}
    return measured_pairs({name: samples[name] for name in measured}, doubtful, seed)


def _measured_row(
    row: Row, samples: dict[str, list[list[float]]], rounds: Rounds, baseline: Rounds, seed: int, paired: bool
) -> Row:
    found = latency(samples[row.name])
    versus = None
    if row.name != BASELINE:
        doubtful = rounds.doubtful or baseline.doubtful
        versus = ratio(samples[row.name], samples[BASELINE], seed, paired, doubtful)
    flags = (*row.flags, "unstable") if found.unstable else row.flags
    if rounds.flag:
        flags = (*flags, rounds.flag)
    return replace(row, latency=found, rounds=rounds, ratio=versus, flags=flags)


def _simulated_row(row: Row, simulated: dict[str, Simulated]) -> Row:
    cost = simulated[row.name]
    versus = None if row.name == BASELINE else exact_ratio(cost.ms / simulated[BASELINE].ms)
    flags = ["simulated", *row.flags]
    if cost.counts["unpriced"]:
        flags.append(f"{cost.counts['unpriced']:.0f} instructions without a price")
    return replace(row, simulated=cost, ratio=versus, flags=tuple(flags))


def _last(events: Sequence[dict[str, Any]], kind: str, variant: str) -> dict[str, Any] | None:
    return next((e for e in reversed(events) if e["kind"] == kind and e["variant"] == variant), None)


def _artifact_fields(artifact: Artifact) -> dict[str, Any]:
    tasks = artifact.tasks
    return {
        "layouts": artifact.census_after.conv_layouts,
        "transforms": len(artifact.census_after.transforms),
        "transforms_free": sum(transform.moved_bytes == 0 for transform in artifact.census_after.transforms),
        "transform_bytes": sum(transform.moved_bytes for transform in artifact.census_after.transforms),
        "tasks": len(tasks),
        "tasks_tuned": sum(task.best_us is not None for task in tasks),
        "ops": sum(task.ops for task in tasks),
        "ops_tuned": sum(task.ops for task in tasks if task.best_us is not None),
        "ops_one_point": sum(task.ops for task in tasks if task.untuned_because == ONE_POINT and task.borrowed is None),
        "ops_borrowed": sum(task.ops for task in tasks if task.borrowed is not None),
        "trials": sum(task.trials for task in tasks),
        "trials_failed": sum(task.failed for task in tasks),
        "dequantised": artifact.dequantised,
        "tuning_ended": artifact.tuning_ended,
    }


def _flags(fields: dict[str, Any]) -> list[str]:
    flags = []
    if fields["dequantised"]:
        flags.append("int8 computed as float32")
    if not fields["tuned"]:
        flags.append("untuned")
    elif missing := fields["ops"] - fields["ops_tuned"] - fields["ops_one_point"] - fields["ops_borrowed"]:
        flags.append(f"{missing} ops untuned")
    if fields["ops_borrowed"]:
        flags.append(f"borrowed ({fields['ops_borrowed']})")
    if fields["tuning_ended"] in STOPPED_EARLY:
        flags.append(f"stopped by {fields['tuning_ended']}")
    # A first convolution that reads an image's three channels and writes blocks is part of one chain: what counts
    # is the layout written.
    if len({layout.split("->")[-1] for layout in fields["layouts"]}) > 1:
        flags.append("mixed layouts")
    return flags


def _with_speedups(rows: list[Row], untuned: str | None) -> list[Row]:
    """Speed-ups over the spec's untuned row, when it has one that ran."""
    reference = next((row.ms for row in rows if row.name == untuned), None)
    if reference is None:
        return rows
    return [replace(row, speedup=reference / row.ms) if row.ms and row.name != BASELINE else row for row in rows]
