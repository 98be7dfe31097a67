"""`layoutlab profile`: what each function of a finished run's variants computes, and how long it takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from layoutlab.compiling import file_sha256
from layoutlab.device.base import Device, TimesFunctions
from layoutlab.device.choose import choose
from layoutlab.device.kryo.cycles import Totals, estimate
from layoutlab.device.rpc.device import describe_remote
from layoutlab.engine.base import Artifact, from_json
from layoutlab.engine.provenance import ExecutedFunction, Operator, Provenance
from layoutlab.errors import DeviceError, LayoutlabError, StageError, UsageError
from layoutlab.progress import Progress
from layoutlab.spec.load import LoadedSpec
from layoutlab.spec.models import DeviceSpec, VariantSpec
from layoutlab.store import Store

# A function is slower than its record promised when it takes this many times as long ...
SLOWER = 1.5
# ... and that costs at least this share of an inference, and this many microseconds: timing a call costs some of them.
SLOWER_SHARE = 0.01
SLOWER_US = 5.0
# From this share of an inference on it is worth saying that a machine interrupts it.
BUSY_SHARE = 0.05


@dataclass(frozen=True, kw_only=True)
class ProfileRow:
    """One executed function of an inference; on a simulated core all calls of a symbol: their costs are not told apart.

    `nodes` are its places in execution order; `ops` (the original operators whose output it computes), `parts` (those
    of which it computes a part) and `transforms` as in `engine.provenance`; `shape` and `layout` are its output's (of
    the first call); `calls` its calls; `time_ms` the time of all of them in one inference, a median where measured;
    `share` that of the end-to-end time; `flop` and `bytes` those of all calls. `task` is its tuning task and `best_us`
    the best time of one call in the tuning records, where it has one; `ratio` how many times that a call takes here.
    """

    nodes: tuple[int, ...]
    function: str
    ops: tuple[Operator, ...]
    parts: tuple[Operator, ...]
    transforms: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    layout: str | None
    calls: int
    time_ms: float
    share: float
    flop: int
    bytes: int
    task: str | None
    best_us: float | None
    ratio: float | None
    slower: bool

    @property
    def gflops(self) -> float | None:
        """Billions of floating-point operations a second; None where nothing is computed."""
        return self.flop / self.time_ms / 1e6 if self.flop and self.time_ms else None

    @property
    def gigabytes_per_s(self) -> float | None:
        """Billions of bytes a second, each tensor counted once."""
        return self.bytes / self.time_ms / 1e6 if self.time_ms else None


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A variant's profile.

    `rows` are in order of time, longest first; `end_to_end_ms` is the time of whole inferences that were not looked
    into, measured (a median) in the same process, or simulated; `remainder_ms` is what it has besides the functions,
    and may be negative where it was measured, for looking costs time too. `instrumented_ms` is an inference's time
    while it was looked into, None where simulated. `interrupted_ms` is what the functions of an inference took longer
    (median) than the sum of their medians: a machine that does something else interrupts now one, now another.
    `homes` has for each operator the node that computes its output, `removed` for those that none computes why. `raw`
    has the samples that the medians are of.
    """

    variant: str
    device: str
    simulated: bool
    runtime: str
    end_to_end_ms: float
    instrumented_ms: float | None
    interrupted_ms: float
    inferences: int
    rows: tuple[ProfileRow, ...]
    operators: tuple[Operator, ...]
    homes: dict[int, int]
    removed: dict[int, str]
    raw: dict[str, Any]

    @property
    def functions_ms(self) -> float:
        """The sum over all functions; not a latency."""
        return sum(row.time_ms for row in self.rows)

    @property
    def remainder_ms(self) -> float:
        """What an inference takes besides its functions."""
        return self.end_to_end_ms - self.functions_ms

    @property
    def busy(self) -> bool:
        """Whether the machine did so much else that the end-to-end time says little."""
        return self.interrupted_ms > BUSY_SHARE * self.end_to_end_ms

    @property
    def flop(self) -> int:
        """Floating-point operations of one inference."""
        return sum(row.flop for row in self.rows)


def profile_spec(
    loaded: LoadedSpec, results: Path, progress: Progress
) -> Iterator[tuple[str, Profile | LayoutlabError]]:
    """The profile of each variant of the spec's last run, or why it has none.

    Raises UsageError when the spec has no finished run, DeviceError when this is not the device of that run.
    """
    with Store(results / "runs" / loaded.spec.name) as store:
        events = store.last_run()
        finished = next((event for event in events if event["kind"] == "finished"), None)
        if finished is None:
            raise UsageError(f"{store.folder} holds no finished run: layoutlab run {loaded.path}, then profile again")
        run = _ProfiledRun(loaded, store, events[0], finished["protocol"])
        for variant in loaded.spec.variants:
            progress.show(f"{variant.name}: profile")
            try:
                yield variant.name, run.profile(variant)
            except (StageError, UsageError) as error:
                yield variant.name, error


class _ProfiledRun:
    """A finished run, and what is needed to look into its variants."""

    def __init__(self, loaded: LoadedSpec, store: Store, event: Mapping[str, Any], protocol: str) -> None:
        self._loaded, self._store, self._event, self._protocol = loaded, store, event, protocol
        self._device = None if event["simulated"] else self._find_device()

    def _log(self, name: str) -> Path:
        return self._store.folder / "logs" / f"{name}.log"

    def _find_device(self) -> Device:
        # Where the run was, which --device may have said.
        place = DeviceSpec.model_validate(self._event["spec"]["device"])
        device = choose(
            self._loaded.spec.model_copy(update={"device": place}),
            lambda: dict(self._event["target"]),
            _no_core,
            lambda address: describe_remote(address, self._loaded.spec, self._log("device")),
        ).device
        if device.name != self._event["device"]:
            raise DeviceError(
                f"{self._store.folder} was run on {self._event['device']}, and this is {device.name}: "
                "profile it there, or run the spec here"
            )
        return device

    def profile(self, variant: VariantSpec) -> Profile:
        artifact = self._artifact(variant.name)
        if self._device is None:
            return self._simulated(variant.name, artifact)
        runner = {"kind": "artifact", "path": artifact.path, "threads": self._loaded.spec.threads}
        log = self._log(variant.name)
        with self._device.lease(log) as leased:
            assert isinstance(leased, TimesFunctions)  # as all are that measure
            taken = leased.time_functions(runner, self._store.folder / "inputs.npz", log)
        return measured_profile(variant.name, str(self._event["device"]), artifact, taken)

    def _artifact(self, variant: str) -> Artifact:
        """What the last run measured of the variant. Raises UsageError when that is not there any more."""
        events = [event for event in self._store.last_run() if event.get("variant") == variant]
        uses = next((event for event in events if event["kind"] == "uses"), None)
        if any(event["kind"] == "failed" for event in events):
            raise UsageError(f"it failed in the last run: layoutlab report {self._loaded.path} says why")
        built = self._store.find("built", key=uses["built"], budget=uses["budget"]) if uses else None
        if built is None:
            raise UsageError(f"the last run built no {variant}: layoutlab report {self._loaded.path} says why")
        artifact = from_json(Artifact, built["artifact"])
        path = Path(artifact.path)
        if not path.is_file() or file_sha256(path) != artifact.sha256:
            raise UsageError(f"{path} is not what the last run measured: layoutlab run {self._loaded.path} again")
        if artifact.provenance is None:
            raise UsageError(
                f"{path} was built by a layoutlab that did not note what its functions compute: remove it, "
                f"and layoutlab run {self._loaded.path} again, which builds it from the same records"
            )
        return artifact

    def _simulated(self, variant: str, artifact: Artifact) -> Profile:
        counted = self._store.find("samples", protocol=self._protocol, row=variant)
        if counted is None:
            raise UsageError(f"the last run did not count {variant}: layoutlab report {self._loaded.path} says why")
        return simulated_profile(variant, str(self._event["device"]), artifact, counted)


def _no_core() -> Any:
    raise DeviceError("the run was no simulated one")


def measured_profile(variant: str, device: str, artifact: Artifact, taken: Mapping[str, Any]) -> Profile:
    """The profile from what `device.function_times` measured.

    Raises StageError when other functions ran than were built.
    """
    provenance = _provenance(artifact)
    expected = [function.function for function in provenance.functions]
    if taken["functions"] != expected:
        raise StageError("profile", _difference(taken["functions"], expected))
    samples_ms = np.asarray(taken["times_us"]) / 1e3
    times_ms = np.median(samples_ms, axis=0)
    end_to_end_ms = float(np.median(taken["end_to_end_ms"]))
    build = _RowBuilder(artifact, end_to_end_ms)
    rows = [build.row([function], float(ms)) for function, ms in zip(provenance.functions, times_ms, strict=True)]
    return Profile(
        variant=variant,
        device=device,
        simulated=False,
        runtime=taken["runtime"],
        end_to_end_ms=end_to_end_ms,
        instrumented_ms=float(np.median(taken["instrumented_ms"])),
        interrupted_ms=max(0.0, float(np.median(samples_ms.sum(axis=1)) - times_ms.sum())),
        inferences=len(taken["end_to_end_ms"]),
        rows=_by_time(rows),
        operators=provenance.operators,
        homes=provenance.homes,
        removed=provenance.removed,
        raw={name: taken[name] for name in ("times_us", "end_to_end_ms", "instrumented_ms", "conditions")},
    )


def simulated_profile(variant: str, device: str, artifact: Artifact, counted: Mapping[str, Any]) -> Profile:
    """The profile from the counts of a simulated inference, a sample of `device.base.Device`, which sums exactly."""
    provenance = _provenance(artifact)
    end_to_end_ms = estimate(Totals(**counted["counts"])).ms
    costs_ms = {
        found["name"]: estimate(Totals(**{key: value for key, value in found.items() if key != "name"})).ms
        for found in counted["functions"]
    }
    by_symbol: dict[str, list[ExecutedFunction]] = defaultdict(list)
    for function in provenance.functions:
        by_symbol[function.function].append(function)
    missing = [name for name in by_symbol if name not in costs_ms]
    if missing:
        raise StageError("profile", f"the library has functions that did not run: {', '.join(missing)}")
    build = _RowBuilder(artifact, end_to_end_ms)
    return Profile(
        variant=variant,
        device=device,
        simulated=True,
        runtime=counted["runtime"],
        end_to_end_ms=end_to_end_ms,
        instrumented_ms=None,
        interrupted_ms=0.0,
        inferences=1,
        rows=_by_time([build.row(calls, costs_ms[name]) for name, calls in by_symbol.items()]),
        operators=provenance.operators,
        homes=provenance.homes,
        removed=provenance.removed,
        raw={"functions": counted["functions"]},
    )


def _provenance(artifact: Artifact) -> Provenance:
    assert artifact.provenance is not None
    return artifact.provenance


def _difference(found: Sequence[str], expected: Sequence[str]) -> str:
    """Where the functions that ran differ from those that the library was built of."""
    at = next((at for at, names in enumerate(zip(found, expected, strict=False)) if names[0] != names[1]), None)
    if at is None:
        return f"{len(found)} functions ran, and the library was built of {len(expected)}"
    return f"function {at} that ran is {found[at]}, and {expected[at]} was built in its place"


def _by_time(rows: Sequence[ProfileRow]) -> tuple[ProfileRow, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.time_ms, row.nodes)))


class _RowBuilder:
    """Makes rows from calls of one function and the time that they take together."""

    def __init__(self, artifact: Artifact, end_to_end_ms: float) -> None:
        self._operators = _provenance(artifact).operators
        self._best_us = {task.name: task.best_us for task in artifact.tasks}
        self._end_to_end_ms = end_to_end_ms

    def row(self, calls: Sequence[ExecutedFunction], time_ms: float) -> ProfileRow:
        first = calls[0]
        best_us = None if first.task is None else self._best_us.get(first.task)
        ratio = None if not best_us else time_ms * 1e3 / len(calls) / best_us
        lost_us = 0.0 if best_us is None else time_ms * 1e3 - len(calls) * best_us
        worth = max(SLOWER_SHARE * self._end_to_end_ms * 1e3, SLOWER_US)
        return ProfileRow(
            nodes=tuple(call.node for call in calls),
            function=first.function,
            ops=tuple(self._operators[op] for call in calls for op in call.ops),
            parts=tuple(self._operators[op] for call in calls for op in call.parts),
            transforms=tuple(dict.fromkeys(name for call in calls for name in call.transforms)),
            shape=first.shape,
            dtype=first.dtype,
            layout=first.layout,
            calls=len(calls),
            time_ms=time_ms,
            share=time_ms / self._end_to_end_ms,
            flop=sum(call.flop for call in calls),
            bytes=sum(call.bytes for call in calls),
            task=first.task,
            best_us=best_us,
            ratio=ratio,
            slower=ratio is not None and ratio > SLOWER and lost_us > worth,
        )
