"""The plain data that crosses between an engine's worker process and the experiment: no TVM object ever does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter

from layoutlab.device.base import DeviceKind
from layoutlab.device.rpc.address import RpcAddress
from layoutlab.engine.provenance import Provenance
from layoutlab.hooks import Conv, Rule


@dataclass(frozen=True, kw_only=True)
class LayoutTransform:
    """One executed change of layout: after which operator, before which, and the bytes it reads and writes."""

    op: str
    after: str
    before: str
    from_shape: tuple[int, ...]
    to_shape: tuple[int, ...]
    moved_bytes: int


@dataclass(frozen=True, kw_only=True)
class Census:
    """Convolutions by the layout they really have, and the layout transforms left in the graph."""

    conv_layouts: dict[str, int]
    transforms: tuple[LayoutTransform, ...]


@dataclass(frozen=True, kw_only=True)
class ConvReport:
    """What became of one convolution: its layout before, the hook's answer (None: keep), its layout after, and why."""

    conv: Conv
    before: str
    answer: str | None
    after: str
    why: str


@dataclass(frozen=True, kw_only=True)
class LayoutReport:
    """What a variant does to a model's layouts, and the Relax text before and after."""

    census_before: Census
    census_after: Census
    convs: tuple[ConvReport, ...]
    ir_before: str
    ir_after: str
    dequantised: bool = False


# Why a task has no record: what `TaskCoverage.untuned_because` begins with.
NOT_TUNED = "not tuned by the spec"
SKIPPED = "skipped by the spec"
ONE_POINT = "space of one point"
EVERY_FAILED = "every candidate failed"
NOT_REACHED = "no trial reached it within the budget"


@dataclass(frozen=True, kw_only=True)
class TaskCoverage:
    """One tuning task of a variant.

    `index`: its number in execution order, from 0; `ops`: call sites it serves; `kind` and `layout`: what it computes
    ("conv2d", "pool2d", ...) and on which layout, where it has one; `space`: points of its design space, 1 where there
    is nothing to choose; `flop`: operations of one call, as TVM estimates them; `trials`: candidates tried, of which
    `failed` gave no time, the first for the reason `first_failure`; `best_us`: the best measured time of one call in
    microseconds, None without a valid record; `untuned_because`: why it has no record, beginning with one of the
    reasons above; `hit`: whether the build took a schedule for it; `borrowed`: the lent set that the build took a
    record from, for want of an own one. What is None is unknown.
    """

    name: str
    ops: int
    trials: int
    failed: int
    best_us: float | None
    index: int = 0
    kind: str | None = None
    layout: str | None = None
    space: int | None = None
    flop: float | None = None
    first_failure: str | None = None
    untuned_because: str | None = None
    hit: bool | None = None
    borrowed: str | None = None


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A built variant: the shared library, and what went into it.

    `dequantised` says that a quantised model is computed in float between dequantize and quantize.
    `conv_us` has for each of `convs` the best time of its function in the tuning records, None where it is untuned.
    `tuning_ended` is why: "budget", "time limit", "early stop" or "nothing left" to try; None where nothing was tuned.
    `tune_s` is the time of the run that finished the tuning; interrupted runs before it are not in it. `provenance`
    says which operators its functions compute; None in what an earlier layoutlab built, and where that is not known.
    `runner` is the kind of runner that the library is for (see `device.runners`), `built_by` what tables say of an
    engine that is not ours.
    """

    path: str
    sha256: str
    census_before: Census
    census_after: Census
    tasks: tuple[TaskCoverage, ...] = ()
    convs: tuple[ConvReport, ...] = ()
    conv_us: tuple[float | None, ...] = ()
    dequantised: bool = False
    tuning_ended: str | None = None
    tune_s: float = 0.0
    build_s: float = 0.0
    provenance: Provenance | None = None
    runner: str = "artifact"
    built_by: str | None = None


@dataclass(frozen=True, kw_only=True)
class HookOptions:
    """A hook as a spec gives it: its name with the options of nchwc, or a table of rules.

    `allowed` are the prefixes under which a user's own hook may live. `numbers` are given when the model is a part of
    another: the numbers that its convolutions have there, which the hook is told instead of those here.
    """

    label: str
    name: str | None
    block: int | Literal["auto"] | None = None
    pad: bool = False
    rules: tuple[Rule, ...] | None = None
    allowed: tuple[str, ...] = ()
    numbers: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class PassOptions:
    """With which of TVM's passes code is made: without the `disabled` ones, and those of a level above `opt_level`.

    None as `opt_level` is TVM's default.
    """

    disabled: tuple[str, ...] = ()
    opt_level: int | None = None


USUAL_PASSES = PassOptions()


@dataclass(frozen=True, kw_only=True)
class TuningOptions:
    """How a variant is tuned: the fields of the spec's `tuning`, and `measure.cores`, where candidates are timed.

    `passes` are those of the variant, for its candidates are made with the same. `tuner`, `graph_tuner` and `logs`
    (files, absolute) are AutoTVM's, for variants of the Relay engine.
    """

    trials: int
    search: str
    cost_model: str
    pack_weights: bool
    batch: int
    population: int
    seed: int
    time_limit_s: int | None = None
    early_stop: int | None = None
    skip: tuple[str, ...] = ()
    workers: str | None = None
    cold_cache: bool = False
    repeats: int = 3
    min_repeat_ms: int = 15
    cores: str | tuple[int, ...] = "big"
    passes: PassOptions = USUAL_PASSES
    tuner: str | None = None
    graph_tuner: bool = False
    logs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BorrowedRecords:
    """The best records of a lent set, in a folder of their own, and where the set came from, as tables name it."""

    source: str
    folder: str


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What compiles a variant: our TVM's Relax, or the Relay of a TVM in the interpreter `python`.

    With `tophub` that TVM may download and use the records it was once shipped with.
    """

    kind: Literal["relax", "relay"] = "relax"
    python: str | None = None
    tophub: bool = False


RELAX = EngineOptions()


@dataclass(frozen=True, kw_only=True)
class CompileJob:
    """Everything a worker needs to turn one variant into an artifact.

    `target` is the target's dict form, `folder` keeps records, IR text and the library, `hook` is None without an
    alter_op_layout, `tune` is False for the untuned row, and `fuse` where each operator keeps a function of its own.
    `device_kind` says where candidates are measured, and so which linker is needed: on this machine, the simulated Kryo
    core, or the devices at `rpc`. `borrowed` are records for tasks that have none of their own, the first first.
    """

    model_path: str
    target: dict[str, Any]
    folder: str
    convert_layout: str | None
    hook: HookOptions | None
    tune: bool
    tuning: TuningOptions
    device_kind: DeviceKind = "host"
    rpc: RpcAddress | None = None
    borrowed: tuple[BorrowedRecords, ...] = ()
    fuse: bool = True
    engine: EngineOptions = RELAX


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """What to tune of a variant without building it.

    `tasks` chooses some of them by text (see `tune.select`), None means all that the spec does not skip. `trials` are
    spent on them besides those there are; None means what is left of the job's budget, or, where tasks are chosen,
    `DEFAULT_MORE_TRIALS` for each.
    """

    tasks: str | None = None
    trials: int | None = None

    @property
    def additional(self) -> bool:
        """Whether its trials come on top of the job's budget."""
        return self.tasks is not None or self.trials is not None


@dataclass(frozen=True, kw_only=True)
class SharedTask:
    """A task of a variant that other records are of too: its name, and the number of its workload in both.

    `ours` is None where the variant's own records have no such workload yet.
    """

    task: str
    ours: int | None
    theirs: int


DEFAULT_MORE_TRIALS = 64
# Reasons of `Artifact.tuning_ended` for which a variant has less than its budget would have given it.
STOPPED_EARLY = ("time limit", "early stop")


@dataclass(frozen=True, kw_only=True)
class TuneResult:
    """All tasks of a variant before and after; indices of those that were chosen; why tuning ended; seconds taken."""

    before: tuple[TaskCoverage, ...]
    after: tuple[TaskCoverage, ...]
    chosen: tuple[int, ...]
    ended: str
    tune_s: float

    @property
    def trials(self) -> int:
        """Trials that were made."""
        return sum(task.trials for task in self.after) - sum(task.trials for task in self.before)


_Data = TypeVar("_Data")


def to_json(data: Any) -> dict[str, Any]:
    """A dataclass of this module as JSON data."""
    return asdict(data)


def from_json(kind: type[_Data], data: dict[str, Any]) -> _Data:
    """Rebuild a dataclass of this module from data that went through JSON (tuples became lists)."""
    return TypeAdapter(kind).validate_python(data)
