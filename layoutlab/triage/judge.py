"""What can be told from a log, in plain words with numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from layoutlab.triage.functions import FunctionTime, FunctionTimes, bare_name, compare
from layoutlab.triage.progress import Progress, TaskProgress, Tuning
from layoutlab.triage.read import Log
from layoutlab.triage.relay import RelayConv, RelayText
from layoutlab.triage.targets import target_problems
from layoutlab.triage.workloads import Untuned

# The XGB tuner of AutoTVM learns after so many candidates for the first time (`plan_size`), and is random before.
XGB_PLAN = 64
# AutoTVM's limit for building, and for running, one candidate, in seconds (`timeout` of its builders and runners).
TIMEOUT_S = 10.0
# A function dominates with this share of the time, if others of its kind are well below.
_DOMINANT_SHARE, _DOMINANT_TIMES = 0.05, 3.0
# With fewer than two others there is only its share.
_ALONE_SHARE = 0.1
# Where an output element costs up to so many times what it costs others, the size is the better part of the reason.
_LIKE_OTHERS = 1.5


def untuned_findings(untuned: Untuned) -> Iterator[str]:
    """What the warnings about missing records mean."""
    layouts = Counter(workload.layout for workload in untuned.workloads if workload.layout)
    if untuned.workloads:
        yield (
            "A warning means that there is no tuning record of just this workload for this target. TVM then takes a "
            "default schedule, which says nothing about the layout."
        )
    if layouts and all(layout.startswith("NCHW") for layout in layouts):
        yield (
            f"No convolution here is NHWC: {_listed_counts(layouts)}. A TFLite model is NHWC: if yours is one, TVM "
            "changed the layout, by ConvertLayout or by the alter_op_layout hook of arm_cpu, and records of NHWC "
            "workloads do not fit these. A hook that returns None keeps NHWC (alter_op_layout: keep)."
        )
    elif len(layouts) > 1:
        yield (
            f"Layouts are mixed: {_listed_counts(layouts)}. Either the log is of several builds, or layouts were "
            "changed after tasks were extracted, so that records and workloads do not meet."
        )
    depthwise = [workload for workload in untuned.workloads if workload.op == "depthwise_conv2d"]
    if any(workload.layout == "NHWC" for workload in depthwise):
        yield "Depthwise convolutions in NHWC had no tunable schedule for Arm CPUs before TVM 0.7, only a generic one."
    if untuned.unnamed:
        yield (
            '"One or more operators have not been tuned" names none. Since TVM 0.8 they are logged at level DEBUG '
            'only: logging.getLogger("autotvm").setLevel(logging.DEBUG), then build again and read that log.'
        )
    if untuned.cut_short:
        yield f"{_count(untuned.cut_short, 'warning')} cut short or damaged, and not counted."


def target_findings(log: Log) -> Iterator[str]:
    """What the targets lack."""
    for target in log.targets:
        problems = target_problems(target)
        yield f"{target}: " + ("; ".join(problems) if problems else "nothing is missing")
    if len(log.targets) > 1:
        yield "Several targets: AutoTVM finds a record by the target's -model, or else by its keys (-device)."


def tuning_findings(tuning: Tuning) -> Iterator[str]:
    """How tuning went, session by session."""
    for number, session in enumerate(tuning.sessions, 1):
        prefix = f"Session {number} of {len(tuning.sessions)}: " if len(tuning.sessions) > 1 else ""
        for finding in _session_findings(session):
            yield prefix + finding
    if tuning.errors:
        failed = ", ".join(f"{count} {kind}" for kind, count in tuning.errors.items())
        yield f"Candidates that failed, by AutoTVM's names: {failed}."
    for task in tuning.hopeless:
        yield f"AutoTVM found no valid schedule at all for {task}"
    if tuning.debug_switches:
        yield (
            f"AutoTVM gave up being quiet {_count(tuning.debug_switches, 'time')}, after more than 150 errors in a "
            "row: the errors' texts follow in the log."
        )
    if tuning.cut_short:
        yield f"{_count(tuning.cut_short, 'line')} of progress cut short, and not counted."


def _session_findings(session: Progress) -> Iterator[str]:
    tasks, asked = session.tasks, session.n_trial
    single = [task for task in tasks if task.trials == 1 < asked]
    if single:
        yield (
            f"One candidate: {len(single)} of {_tasks(tasks)} ({_numbers(single)}). n_trial is {asked} or more, but "
            "the space of these has one point: their template has nothing to choose for this operator and layout. "
            "More trials change nothing; another layout, or another template, may."
        )
    fewer = [task for task in tasks if 1 < task.trials < asked]
    if fewer:
        spaces = ", ".join(f"{task.number}: {task.trials}" for task in fewer[:20])
        yield f"n_trial is above the space of {_tasks(fewer)} (task: points): {spaces}."
    yield from _invalid_findings(tasks)
    if asked < XGB_PLAN:
        yield (
            f"At most {_count(asked, 'trial')} a task: AutoTVM's XGB tuner learns for the first time after "
            f"{XGB_PLAN}, so these candidates were random. Some hundred a task are usual."
        )
    yield from _unfinished_findings(session)


def _invalid_findings(tasks: Sequence[TaskProgress]) -> Iterator[str]:
    invalid = [task for task in tasks if task.none_valid]
    if not invalid:
        return
    quick = [task for task in invalid if task.seconds / task.tried < 1]
    slow = [task for task in invalid if task.seconds >= TIMEOUT_S and task not in quick]
    hints = []
    if slow:
        hints.append(
            f"{len(slow)} took {TIMEOUT_S:.0f} s or more ({_numbers(slow)}), AutoTVM's limit for one candidate to be "
            "built or to run: the device is slow or does not answer, or the limit is too short"
        )
    if quick:
        hints.append(
            f"{len(quick)} ended within a second a candidate ({_numbers(quick)}): refused by the compiler or by the "
            "device at once"
        )
    yield (
        f"None valid: {len(invalid)} of {_tasks(tasks)} end at 0.00 GFLOPS ({_numbers(invalid)}). No candidate "
        "worked, or none reached 0.005 GFLOPS; these tasks have no record, and run with a default schedule."
    )
    for hint in hints:
        yield f"Of those, {hint}."
    yield 'Why they failed is logged at level DEBUG only: logging.getLogger("autotvm").setLevel(logging.DEBUG).'


def _unfinished_findings(session: Progress) -> Iterator[str]:
    early = [task for task in session.tasks if task.done and task.tried < task.trials]
    if early:
        yield f"Ended before all trials (early stopping, or interrupted): {_tasks(early)} ({_numbers(early)})."
    running = [task for task in session.tasks if not task.done and task.tried < task.trials]
    if running:
        yield f"Not finished in this log: {_tasks(running)} ({_numbers(running)})."
    if session.missing:
        yield f"Not in this log: {len(session.missing)} of {session.tasks_in_all} tasks ({_ranges(session.missing)})."


def time_findings(times: FunctionTimes, relay: RelayText) -> Iterator[str]:
    """Which functions dominate, and what their names tell."""
    if times.shown_us < 0.98 * times.total_us:
        missing = 1 - times.shown_us / times.total_us
        yield f"By its percentages the table is cut: rows with {missing:.0%} of the time are missing."
    for row in times.rows:
        if row.us / times.total_us >= _DOMINANT_SHARE:
            yield from _dominant(row, times, relay)
    changed = [row for row in times.rows if row.changes_layout]
    if changed:
        share = sum(row.us for row in changed) / times.total_us
        yield (
            f"Changes of layout stand in the names of {_count(len(changed), 'row')}, {share:.1%} of the time. What "
            "is fused with them (bias, activation) was kept apart from its convolution by them."
        )
    if any(bare_name(row.function) != row.function for row in times.rows):
        yield (
            "The number at the end of a fused name only counts functions with the same name; it does not tell which "
            "operators of the model are inside."
        )


def _dominant(row: FunctionTime, times: FunctionTimes, relay: RelayText) -> Iterator[str]:
    peer, share = compare(row, times), row.us / times.total_us
    if peer is None and share >= _ALONE_SHARE:
        yield f"{row.name} takes {share:.1%}: {row.us:.0f} us ({row.kind}; too few others of its kind to compare with)."
    if peer is None or peer.times_median < _DOMINANT_TIMES:
        return
    text = (
        f"{row.name} takes {share:.1%}: {row.us / row.calls:.0f} us, {peer.times_median:.1f} times "
        f"the median of {peer.others} others of its kind ({peer.median_us:.0f} us)."
    )
    if peer.times_elements is not None and peer.times_per_element is not None:
        text += (
            f" Its output {_shape(row.shape)} has {peer.times_elements:.1f} times their elements, so an element "
            f"costs {peer.times_per_element:.2g} times what it costs them: "
        )
        text += (
            "most of it is the size, and not a slow kernel."
            if peer.times_per_element <= _LIKE_OTHERS
            else "its size alone does not explain it; kernel size and input channels, or the schedule, may."
        )
    yield text + _in_relay(row, relay)


def _in_relay(row: FunctionTime, relay: RelayText) -> str:
    """Which convolution of the log's Relay text this is, where its output's shape tells."""
    plain = plain_nchw(row.shape)
    alike = [conv for conv in relay.convs if plain is not None and conv.output in (row.shape, plain)]
    if len(alike) != 1:
        return ""
    conv: RelayConv = alike[0]
    size = "x".join(map(str, conv.kernel)) or "unknown"
    return f" By its output it is {conv.name} of the Relay text: {conv.channels} channels, kernel {size}."


def plain_nchw(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The NCHW shape of a packed NCHWc one; None for any other."""
    if len(shape) != 5:
        return None
    batch, blocks, height, width, block = shape
    return (batch, blocks * block, height, width)


def relay_findings(relay: RelayText) -> Iterator[str]:
    """The layouts of the Relay text."""
    layouts = Counter(conv.layout for conv in relay.convs)
    if not layouts:
        return
    unwritten = sum(not conv.written for conv in relay.convs)
    text = f"{_count(len(relay.convs), 'convolution')} in the Relay text: {_listed_counts(layouts)}"
    if unwritten:
        text += f" ({unwritten} without data_layout, which means NCHW)"
    yield text + "."
    if unwritten == len(relay.convs):
        yield (
            "A TFLite model is imported as NHWC, with data_layout in every line. So this text is of another "
            "frontend, or from after ConvertLayout."
        )
    for (source, made), count in relay.transforms.items():
        yield f"layout_transform {source} -> {made}: {count}."
    if relay.transposes:
        yield f"transpose: {relay.transposes}."


def _tasks(tasks: Sequence[TaskProgress]) -> str:
    return _count(len(tasks), "task")


def _numbers(tasks: Iterable[TaskProgress]) -> str:
    return "task " + _ranges([task.number for task in tasks])


def _ranges(numbers: Sequence[int]) -> str:
    """`3, 5-7`, at most twenty parts."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    shown = [str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts]
    return ", ".join(shown[:20]) + (", ..." if len(shown) > 20 else "")


def _listed_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
