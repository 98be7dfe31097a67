"""Why a function is slower in the network than its tuning record promised, as far as experiments tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from layoutlab.engine.base import TaskCoverage
from layoutlab.engine.explanation import FunctionExperiments, Timed
from layoutlab.report.profile_data import ProfileRow

# Two times are told apart when one is more than this many times the other ...
APART = 1.25
# ... and longer by this many microseconds: timing a call costs about as much.
APART_US = 1.0
# From this share of a function's time on, a transform in it is worth naming.
TRANSFORM_SHARE = 0.1

NOT_TOLD_APART = "not told apart by these experiments"


@dataclass(frozen=True, kw_only=True)
class ExplainedRow:
    """One executed function, the experiments with it, and the likely causes of its time.

    Times are microseconds of one call. `graph_us` is that within the network, `best_us` what its tuning record
    promised, None without one. `transform_us` is the time of the changes of layout in it, as functions of their own,
    and `unfused_us` that of everything it was fused of; both None where there is nothing of the kind, or it failed, and
    `untuned` of those parts are naive loops. `failed` has what failed, by the name of the time.
    """

    profile: ProfileRow
    graph_us: float
    best_us: float | None
    again_us: float | None
    warm_us: float | None
    cold_us: float | None
    transform_us: float | None
    unfused_us: float | None
    untuned: int
    failed: dict[str, str]
    causes: tuple[str, ...]


def explained(
    row: ProfileRow, task: TaskCoverage | None, found: FunctionExperiments, tuned_cold: bool = False
) -> ExplainedRow:
    """The row of a function, from its profile, its tuning task in the built variant, and the experiments with it.

    `tuned_cold` says that the tuner measures with cold caches, as it does on the simulated core.
    """
    ways: dict[str, list[Timed | None]] = {
        "again": [found.again],
        "warm": [found.warm],
        "cold": [found.cold],
        "transform": [part.timed for part in found.parts if part.transforms],
        # What was not fused cannot be taken apart.
        "unfused": [part.timed for part in found.parts] if len(found.parts) > 1 else [],
    }
    times = {name: _sum_us(timed) for name, timed in ways.items()}
    times["alone"] = times["cold" if tuned_cold else "warm"]
    failed = {name: text for name, timed in ways.items() if (text := _failure(timed)) is not None}
    graph_us = row.time_ms * 1e3 / row.calls
    causes = [
        *_of_the_record(row, graph_us, task, times, found.like_record),
        *_of_the_network(row, graph_us, times),
    ]
    return ExplainedRow(
        profile=row,
        graph_us=graph_us,
        best_us=row.best_us,
        again_us=times["again"],
        warm_us=times["warm"],
        cold_us=times["cold"],
        transform_us=times["transform"],
        unfused_us=times["unfused"],
        untuned=sum(not part.tuned for part in found.parts) if ways["unfused"] else 0,
        failed=failed,
        causes=tuple(causes or ([NOT_TOLD_APART] if row.slower else [])),
    )


def microseconds(us: float) -> str:
    """As tables and causes show a time: three digits, where there are so many."""
    return f"{us:.1f}" if us >= 10 else f"{us:.2f}"


# By the name of the experiment; "alone" is the one of "warm" and "cold" that is like the tuner's.
_Times = Mapping[str, float | None]


def _sum_us(timed: Sequence[Timed | None]) -> float | None:
    """The sum; None when one of them is missing or failed, or there are none."""
    found = [one.us for one in timed if one is not None and one.us is not None]
    return sum(found) if timed and len(found) == len(timed) else None


def _failure(timed: Sequence[Timed | None]) -> str | None:
    return next((one.failed for one in timed if one is not None and one.failed), None)


def _longer(time_us: float | None, than_us: float | None) -> bool:
    """Whether the one time is clearly longer than the other; not when one is unknown."""
    if time_us is None or than_us is None:
        return False
    return time_us > APART * than_us and time_us - than_us > APART_US


def _of_the_record(
    row: ProfileRow, graph_us: float, task: TaskCoverage | None, times: _Times, like_record: bool | None
) -> Iterator[str]:
    """What is wrong with what tuning promised."""
    if row.best_us is None:
        yield f"untuned: {task.untuned_because}" if task and task.untuned_because else "untuned"
    elif task is not None and task.hit is False:
        yield "record missed: the build did not take it"
    if like_record is False:
        yield "different fusion: it has other parts than what its record was made for"
    again_us = times["again"]
    # Long repeats, as the tuner's are, are longer on a machine that is busy now: then the function alone is not.
    as_promised = times["alone"] is not None and not _longer(times["alone"], row.best_us)
    if again_us is not None and _longer(graph_us, row.best_us) and _longer(again_us, row.best_us) and not as_promised:
        yield f"noisy tuning sample, or another machine state: its record takes {microseconds(again_us)} us now"


def _of_the_network(row: ProfileRow, graph_us: float, times: _Times) -> Iterator[str]:
    """What is otherwise in the network than it was while tuning, and what a change of layout takes of it."""
    slower = _longer(graph_us, row.best_us)
    if slower and _longer(graph_us, times["warm"]) and not _longer(graph_us, times["cold"]):
        yield "cold cache: alone it takes as long when its data are not in the caches"
    # The tuner measures a candidate with its weights as if they were packed.
    if slower and _longer(times["alone"], times["again"]):
        yield "other code: as it was built it is slower, alone as well, than as the tuner builds its record"
    transform_us = times["transform"]
    if transform_us is not None and transform_us >= TRANSFORM_SHARE * graph_us:
        what = "layout transform fused in" if row.ops or row.parts else "a layout transform"
        yield f"{what}: {', '.join(row.transforms)} takes {microseconds(transform_us)} us alone"
