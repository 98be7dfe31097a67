"""What tuning covered, task by task: what was tried, what came of it, and why a task has no record."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tvm.s_tir.analysis import estimate_tir_flops

from layoutlab.engine.base import EVERY_FAILED, NOT_REACHED, NOT_TUNED, ONE_POINT, SKIPPED, TaskCoverage
from layoutlab.engine.relax.tune.failures import first_failures, workload_key
from layoutlab.engine.relax.tune.kinds import task_kind
from layoutlab.engine.relax.tune.records import FAILED_S, best_us, trial_times
from layoutlab.engine.relax.tune.space import only_schedule, space_of
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.engine.relax.whole_vectors import padding_flop


def coverage(
    database: meta_schedule.database.Database,
    tasks: Sequence[meta_schedule.ExtractedTask],
    *,
    tune: bool = True,
    skipped: Collection[int] = (),
) -> list[TaskCoverage]:
    """What was tried for each task, in the order given. Failed candidates are counted, not hidden.

    `tune` is False for a variant that is not tuned, of whose tasks no space is counted; `skipped` are the indices of
    tasks that the spec leaves out. `hit` is left open: it is known after the build.
    """
    failures = first_failures(database)
    mods = [task.dispatched[0] for task in tasks]
    found = []
    for index, (task, seconds) in enumerate(zip(tasks, trial_times(database, mods), strict=True)):
        mod = mods[index]
        kind, layout = task_kind(mod["main"])
        space = space_of(mod, task.target) if tune else None
        failure = _first_failure(database, mod, failures)
        best = best_us(seconds)
        found.append(
            TaskCoverage(
                name=str(task.task_name),
                ops=int(task.weight),
                trials=len(seconds),
                failed=sum(time >= FAILED_S for time in seconds),
                best_us=best,
                index=index,
                kind=kind,
                layout=layout,
                space=space,
                flop=float(estimate_tir_flops(mod) - padding_flop(mod)),
                first_failure=failure,
                untuned_because=None
                if best is not None
                else _reason(tune, index in skipped, space, len(seconds), failure),
            )
        )
    return found


def with_only_schedules(
    database: meta_schedule.database.Database,
    tasks: Sequence[meta_schedule.ExtractedTask],
    covered: Sequence[TaskCoverage],
) -> tuple[meta_schedule.database.Database, frozenset[str]]:
    """The database for the build, and the names of the tasks that must find a schedule in it.

    A task whose space is one point is never measured. Its schedule fuses the loops and shares them among threads. On
    several threads it is taken as it stands, in memory only, so that the records on disk hold nothing but what was
    measured. On one thread TVM's default loops stay: in 23 such tasks of four tiny networks and MobileNetV3 (reshapes,
    pads, transforms) they were never slower, and a padding took 1 us instead of 9.
    """
    known = frozenset(task.name for task in covered if task.best_us is not None or task.borrowed is not None)
    alone = [
        task
        for task, found in zip(tasks, covered, strict=True)
        if found.untuned_because == ONE_POINT and found.borrowed is None
    ]
    alone = [task for task in alone if int(task.target.attrs.get("num-cores", 1)) > 1]
    chosen = meta_schedule.database.MemoryDatabase()
    taken = [str(task.task_name) for task in alone if _commit_only_schedule(chosen, task)]
    return meta_schedule.database.OrderedUnionDatabase(database, chosen), known.union(taken)


def _commit_only_schedule(database: meta_schedule.database.Database, task: meta_schedule.ExtractedTask) -> bool:
    mod = task.dispatched[0]
    candidate = only_schedule(mod, task.target)
    if candidate is None:
        return False
    # A record without a time is never found. Nobody sees this one, and nothing competes with it.
    unseen_s = 1.0
    workload = database.commit_workload(mod)
    database.commit_tuning_record(
        meta_schedule.database.TuningRecord(candidate.sch.trace, workload, [unseen_s], task.target, candidate.args_info)
    )
    return True


def _first_failure(
    database: meta_schedule.database.Database, mod: tvm.IRModule, failures: dict[str, str]
) -> str | None:
    if not failures or not database.has_workload(mod):
        return None
    return failures.get(workload_key(database, mod))


def _reason(tune: bool, skipped: bool, space: int | None, trials: int, failure: str | None) -> str:
    """Why a task has no valid record."""
    if not tune:
        return NOT_TUNED
    if skipped:
        return SKIPPED
    if trials or failure:
        return f"{EVERY_FAILED}: {failure or 'its message was not kept'}"
    return ONE_POINT if space == 1 else NOT_REACHED
