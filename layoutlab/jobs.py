"""What a worker process can be asked to do. Every verb takes JSON data and returns JSON data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from layoutlab.engine.base import CompileJob, from_json, to_json


def describe_host(report: Any) -> dict[str, Any]:
    """The target of this machine, as TVM's LLVM sees it."""
    from layoutlab.device.host import llvm_target

    return llvm_target()


def describe_model(report: Any, path: str) -> dict[str, Any]:
    """Inputs, outputs and operators of a .tflite file."""
    from layoutlab.model.describe import describe

    report("stage", name="model")
    description = describe(Path(path).read_bytes())
    return {**asdict(description), "op_counts": description.op_counts()}


def preflight(report: Any, path: str) -> dict[str, Any]:
    """Everything in a .tflite file that TVM's importer would refuse."""
    from layoutlab.engine.relax.preflight import preflight as check

    report("stage", name="import")
    return to_json(check(Path(path).read_bytes()))


def bind_batch(report: Any, path: str, batch: int, bound: str) -> None:
    """Write a copy of a .tflite file with its dynamic batch bound."""
    from layoutlab.model.bind import bind_batch

    report("stage", name="model")
    Path(bound).write_bytes(bind_batch(Path(path).read_bytes(), batch))


def hash_hook(report: Any, name: str, allowed: list[str]) -> str:
    """Hash of the source of a user's hook, which is imported for it."""
    from layoutlab import hooks

    report("stage", name="hook")
    return hooks.source_sha256(hooks.resolve(name, allowed))


def compile_variant(report: Any, job: dict[str, Any]) -> dict[str, Any]:
    """A tuned, built variant; see `layoutlab.engine.relax.compile`."""
    from layoutlab.engine.relax import compile as relax_compile

    return to_json(relax_compile.compile_variant(from_json(CompileJob, job), report))


def lay_out(report: Any, job: dict[str, Any]) -> dict[str, Any]:
    """What a variant does to the layouts, without tuning or building it."""
    from layoutlab.engine.relax import compile as relax_compile

    return to_json(relax_compile.lay_out(from_json(CompileJob, job), report)[1])


def mix_layouts(report: Any, job: dict[str, Any]) -> dict[str, Any]:
    """What a variant does to the layouts, and the time its transforms take, each measured alone."""
    from layoutlab.engine.relax import compile as relax_compile
    from layoutlab.engine.relax.layout.cost import time_transforms
    from layoutlab.engine.relax.tvm_cpu import tvm

    described = from_json(CompileJob, job)
    converted, layouts = relax_compile.lay_out(described, report)
    report("stage", name="measure")
    return {
        "layouts": to_json(layouts),
        "transform_us": time_transforms(converted, tvm.target.Target(described.target)),
    }


def compute_outputs(report: Any, runner: dict[str, Any], inputs: str, outputs: str) -> dict[str, Any]:
    """Run every input set of the file `inputs` and write the results to the file `outputs`."""
    from layoutlab.device.runners import open_runner
    from layoutlab.measure.inputs import load_sets, save_sets

    report("stage", name="run")
    opened = open_runner(runner)
    save_sets(Path(outputs), [opened.run(values) for values in load_sets(Path(inputs))])
    return {"runtime": opened.runtime}


def take_samples(
    report: Any, runner: dict[str, Any], inputs: str, repeats: int, min_repeat_ms: float, warmup_ms: float
) -> dict[str, Any]:
    """Time the first input set: `repeats` samples in ms, and the conditions of the machine around them."""
    from layoutlab.device.runners import open_runner
    from layoutlab.measure.conditions import read_conditions
    from layoutlab.measure.inputs import load_sets
    from layoutlab.measure.timing import sample

    report("stage", name="measure")
    opened = open_runner(runner)
    opened.set_inputs(load_sets(Path(inputs))[0])
    before = read_conditions()
    samples_ms = sample(opened.invoke, repeats=repeats, min_repeat_ms=min_repeat_ms, warmup_ms=warmup_ms)
    return {"samples_ms": samples_ms, "conditions": [before, read_conditions()], "runtime": opened.runtime}


VERBS: dict[str, Callable[..., Any]] = {
    "describe_host": describe_host,
    "describe_model": describe_model,
    "preflight": preflight,
    "bind_batch": bind_batch,
    "hash_hook": hash_hook,
    "compile_variant": compile_variant,
    "lay_out": lay_out,
    "mix_layouts": mix_layouts,
    "compute_outputs": compute_outputs,
    "take_samples": take_samples,
}
