"""What to try next, as specs and commands of layoutlab."""

from __future__ import annotations

from dataclasses import dataclass

from layoutlab.triage.judge import XGB_PLAN
from layoutlab.triage.read import Log
from layoutlab.triage.targets import HOST, is_arm, spec_target, target_flags

SPEC_NAME = "my_layouts.yaml"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing to do: a command, why, and the file it needs (empty without one)."""

    command: str
    why: str
    file: str = ""


def next_steps(log: Log) -> list[Step]:
    """The steps that this log calls for, in order."""
    steps = [
        Step(
            command=f"layoutlab plan {SPEC_NAME}",
            why=f"what it would do, with this as {SPEC_NAME} beside your .tflite file: the same model in NHWC, NCHW "
            "and packed, each tuned with as many trials, checked against TFLite's outputs and measured beside TFLite",
            file=suggested_spec(log),
        )
    ]
    if log.untuned.workloads or log.relay.convs or log.functions:
        steps.append(
            Step(
                command=f"layoutlab layouts {SPEC_NAME}",
                why="which layout every convolution gets in each variant and why, and which changes of layout are left",
            )
        )
    steps.append(
        Step(command=f"layoutlab run {SPEC_NAME}", why="one table: which layout is fastest, and whether that is shown")
    )
    if log.untuned.workloads or log.untuned.unnamed or log.tuning.sessions or log.tuning.hopeless:
        steps.append(
            Step(
                command=f"layoutlab report {SPEC_NAME} --tasks",
                why="for each task the points of its space, its trials, failures with their message, and its record",
            )
        )
    if _few_trials(log):
        steps.append(
            Step(
                command=f"layoutlab tune {SPEC_NAME} --tasks conv2d --trials 500",
                why="more trials for the convolutions alone, where the table says that some are still poor",
            )
        )
    if log.functions is not None:
        steps += _steps_of_profile()
    return steps


def _few_trials(log: Log) -> bool:
    return any(session.n_trial < XGB_PLAN for session in log.tuning.sessions)


def _steps_of_profile() -> list[Step]:
    return [
        Step(
            command=f"layoutlab profile {SPEC_NAME} --explain",
            why="which operators of the .tflite file each function computes, its time in the network and in tuning, "
            "how far it is from the device's limit, and why it is slower than its record",
        ),
        Step(
            command=f"layoutlab op {SPEC_NAME} --op N",
            why="the slowest operator alone, by its number in the profile: tuned in each layout, its records put back",
        ),
    ]


def suggested_spec(log: Log) -> str:
    """A spec for what the log is of: its target as far as a spec can have it, and the layouts in question."""
    target = spec_target(log.targets)
    arm = target != HOST and is_arm(target)
    block = 4 if arm else 8
    note = "" if target != HOST else f"    # this machine; or your device's, e.g. {_example(log)}"
    threads = next((word.partition("=")[2] for word in target.split() if word.startswith("-num-cores=")), "1")
    return "\n".join(
        [
            "name: my_layouts",
            "model: {file: YOUR_MODEL.tflite}",
            f"target: {target}{note}",
            "device: auto",
            f"baseline: {{runtime: tflite, threads: {threads}}}",
            "variants:",
            "  - {name: nhwc, alter_op_layout: keep}",
            "  - {name: nchw, convert_layout: NCHW, alter_op_layout: keep}",
            f"  - {{name: nchw{block}c, convert_layout: NCHW, alter_op_layout: {{hook: nchwc, block: {block}}}}}",
            "tuning: {trials: 1000}",
            "",
        ]
    )


def _example(log: Log) -> str:
    """The log's own Arm target with a place for its core, which it does not name; else a common one."""
    triples = (target_flags(target).get("mtriple") for target in log.targets if is_arm(target))
    triple = next(filter(None, triples), "aarch64-linux-gnu")
    return f"llvm -device=arm_cpu -mtriple={triple} -mcpu=YOUR_CORE -mattr=+neon"
