"""What a worker process can be asked to do. Every verb takes JSON data and returns JSON data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from layoutlab.device.base import DeviceKind
from layoutlab.device.rpc.address import RpcAddress
from layoutlab.device.rpc.links import Wanted
from layoutlab.engine.base import CompileJob, TuneRequest, from_json, to_json
from layoutlab.errors import StageError

# An inference takes seconds under qemu, the largest networks minutes.
_SIMULATED_S = 1800.0


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


def cut_model(report: Any, path: str, ops: list[int], inputs: str, cut: str, cut_inputs: str) -> dict[str, Any]:
    """Write some operators of a .tflite file as a model, and the inputs that they get within it; says what they are.

    `inputs` are sets of inputs of the whole model; `largest` is the largest absolute value of the outputs for them.
    """
    import numpy as np

    from layoutlab.measure.inputs import load_sets, save_sets
    from layoutlab.model.cut import cut as cut_out
    from layoutlab.model.values import cut_values
    from layoutlab.model.work import operators

    report("stage", name="model")
    data = Path(path).read_bytes()
    made = cut_out(data, ops)
    input_sets, output_sets = cut_values(data, made, load_sets(Path(inputs)))
    Path(cut).write_bytes(made.data)
    save_sets(Path(cut_inputs), input_sets)
    described = operators(data)
    largest = [float(np.abs(value.astype(np.float64)).max(initial=0.0)) for found in output_sets for value in found]
    return {"ops": [asdict(described[index]) for index in made.ops], "largest": max(largest)}


def hash_hook(report: Any, name: str, allowed: list[str]) -> str:
    """Hash of the source of a user's hook, which is imported for it."""
    from layoutlab import hooks

    report("stage", name="hook")
    return hooks.source_sha256(hooks.resolve(name, allowed))


def _engine(job: CompileJob) -> Any:
    """The module `compile` of the engine that the job names."""
    if job.engine.kind == "relay":
        from layoutlab.engine.relay import compile as relay_compile

        return relay_compile
    from layoutlab.engine.relax import compile as relax_compile

    return relax_compile


def _relax_only(job: dict[str, Any], what: str) -> CompileJob:
    described = from_json(CompileJob, job)
    if described.engine.kind != "relax":
        raise StageError("start", f"{what} is for variants of engine relax, and this one is of engine relay")
    return described


def describe_relay(report: Any, python: str, target: dict[str, Any]) -> dict[str, Any]:
    """What the TVM of another interpreter is; see `layoutlab.engine.relay.interpreter`."""
    from layoutlab.engine.relay.interpreter import describe

    report("stage", name="start")
    return asdict(describe(python, target, None))


def compile_variant(report: Any, job: dict[str, Any]) -> dict[str, Any]:
    """A tuned, built variant; see `layoutlab.engine.relax.compile` and `layoutlab.engine.relay.compile`."""
    described = from_json(CompileJob, job)
    return to_json(_engine(described).compile_variant(described, report))


def list_tasks(report: Any, job: dict[str, Any]) -> list[dict[str, Any]]:
    """The tuning tasks of a variant, with what its records know about them."""
    described = from_json(CompileJob, job)
    return [to_json(task) for task in _engine(described).list_tasks(described, report)]


def find_shared(report: Any, job: dict[str, Any], others: str) -> list[dict[str, Any]]:
    """The tasks of a variant that the records in a folder are of too."""
    from layoutlab.engine.relax import compile as relax_compile

    described = _relax_only(job, "layoutlab op")
    return [to_json(task) for task in relax_compile.find_shared(described, Path(others), report)]


def tune_variant(report: Any, job: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """A variant tuned, or some tasks of it, without building it."""
    described = from_json(CompileJob, job)
    return to_json(_engine(described).tune_variant(described, from_json(TuneRequest, request), report))


def explain_variant(report: Any, job: dict[str, Any], request: dict[str, Any]) -> list[dict[str, Any]]:
    """Experiments with functions of a built variant; see `layoutlab.engine.relax.explain`."""
    from layoutlab.engine.explanation import ExplainRequest
    from layoutlab.engine.relax.explain import explain

    found = explain(_relax_only(job, "layoutlab profile --explain"), from_json(ExplainRequest, request), report)
    return [to_json(function) for function in found]


def lay_out(report: Any, job: dict[str, Any]) -> dict[str, Any]:
    """What a variant does to the layouts, without tuning or building it."""
    described = from_json(CompileJob, job)
    return to_json(_engine(described).report_layouts(described, report))


def mix_layouts(report: Any, job: dict[str, Any]) -> dict[str, Any]:
    """What a variant does to the layouts, and the time its transforms take, each alone."""
    from layoutlab.engine.relax import compile as relax_compile
    from layoutlab.engine.relax.layout.cost import time_transforms
    from layoutlab.engine.relax.tvm_cpu import tvm

    described = _relax_only(job, "layoutlab winners")
    converted, layouts = relax_compile.lay_out(described, report)
    report("stage", name="measure")
    return {
        "layouts": to_json(layouts),
        "transform_us": time_transforms(
            converted, tvm.target.Target(described.target), described.device_kind, described.rpc
        ),
    }


def compute_outputs(report: Any, **arguments: Any) -> dict[str, Any]:
    """Run a model on every input set; see `layoutlab.device.on_device`."""
    from layoutlab.device import on_device
    from layoutlab.engine.relay.executor import runner

    runner.register()
    report("stage", name="run")
    return on_device.compute_outputs(**arguments)


def take_samples(report: Any, **arguments: Any) -> dict[str, Any]:
    """Time a model; see `layoutlab.device.on_device`."""
    from layoutlab.device import on_device
    from layoutlab.engine.relay.executor import runner

    runner.register()
    report("stage", name="measure")
    return on_device.take_samples(**arguments)


def time_functions(report: Any, **arguments: Any) -> dict[str, Any]:
    """Time each function of a variant; see `layoutlab.device.function_times`."""
    from layoutlab.engine.relay.executor.function_times import time_functions

    report("stage", name="profile")
    return time_functions(**arguments)


def build_kernels(
    report: Any, target: dict[str, Any], threads: int, device_kind: DeviceKind, folder: str
) -> dict[str, Any]:
    """The kernels that measure a device's peaks, built for it, and the floats in one of the target's vectors."""
    from layoutlab.engine.relax.peaks import build_kernels
    from layoutlab.engine.relax.tvm_cpu import tvm
    from layoutlab.engine.relax.vectors import vector_floats

    report("stage", name="build")
    made = tvm.target.Target(target)
    kernels = build_kernels(made, threads, device_kind, Path(folder))
    return {"kernels": [asdict(kernel) for kernel in kernels], "vector_floats": vector_floats(made)}


def time_kernels(report: Any, **arguments: Any) -> list[list[float]]:
    """Time the kernels that measure a device's peaks; see `layoutlab.device.kernel_times`."""
    from layoutlab.device.kernel_times import time_kernels

    report("stage", name="peaks")
    return time_kernels(**arguments)


def release_core(report: Any) -> None:
    """End the simulated core of this process."""
    from layoutlab.device.kryo import held

    held.release()


def simulate_outputs(report: Any, runner: dict[str, Any], inputs: str, outputs: str) -> dict[str, Any]:
    """`compute_outputs` on the simulated core, which sees the files of this machine."""
    from layoutlab.device.kryo import held

    report("stage", name="run")
    core = held.core().core(runner["kind"])
    paths = {"inputs": core.place(Path(inputs), "inputs.npz"), "outputs": str(Path(outputs).resolve())}
    with core.session(_SIMULATED_S) as session:
        return dict(session.do("compute_outputs", runner=core.placed_runner(runner), **paths))


def simulate_inference(report: Any, runner: dict[str, Any], inputs: str) -> dict[str, Any]:
    """One inference of the first input set on the simulated core: raw counts, in all and by function."""
    from layoutlab.device.kryo import held

    report("stage", name="measure")
    done = held.core().run_inference(runner, Path(inputs), _SIMULATED_S)
    return {
        "counts": asdict(done.cycles.totals),
        "functions": [{"name": name, **asdict(cycles.totals)} for name, cycles in done.functions],
        "runtime": done.runtime,
    }


def describe_remote(report: Any, address: dict[str, Any], cores: str | list[int], threads: int) -> dict[str, Any]:
    """What a device over RPC says of itself, which has to have these cores."""
    from layoutlab.device.rpc import lease

    report("stage", name="device")
    return lease.describe(from_json(RpcAddress, address), cores, threads)


def lease_remote(report: Any, address: dict[str, Any], prefer: str | None) -> dict[str, Any]:
    """Lease a device over RPC for the jobs that follow in this process; returns what it says of itself."""
    from layoutlab.device.rpc import lease

    report("stage", name="device")
    return lease.take(from_json(RpcAddress, address), prefer)


def remote_outputs(report: Any, runner: dict[str, Any], inputs: str, outputs: str, limit_s: float) -> dict[str, Any]:
    """`compute_outputs` on the leased device; the files are this machine's."""
    from layoutlab.device.rpc import lease

    report("stage", name="run")
    return lease.taken().compute_outputs(runner, Path(inputs), Path(outputs), limit_s)


def remote_kernels(report: Any, calls: list[Any], options: dict[str, Any], limit_s: float) -> list[list[float]]:
    """`time_kernels` on the leased device; the libraries are this machine's."""
    from layoutlab.device.rpc import lease

    report("stage", name="peaks")
    return lease.taken().time_kernels(calls, options, limit_s)


def check_up_remote(report: Any, wanted: dict[str, Any]) -> None:
    """Try every link of the chain to a device over RPC; each comes as an event, when it is known."""
    from layoutlab.device.rpc.checkup import check_up

    for finding in check_up(from_json(Wanted, wanted), lambda part: report("stage", name=part)):
        report("finding", **asdict(finding))


def survey_remote(report: Any, trackers: list[str], agents: list[dict[str, Any]], until: float) -> dict[str, Any]:
    """The devices at trackers and agents, as far as they are known at the time `until` (seconds of the epoch)."""
    from layoutlab.device.rpc.survey import survey

    report("stage", name="device")
    return asdict(survey(trackers, [from_json(RpcAddress, agent) for agent in agents], until))


def remote_samples(
    report: Any, runner: dict[str, Any], inputs: str, arguments: dict[str, Any], limit_s: float
) -> dict[str, Any]:
    """`take_samples` on the leased device; the files are this machine's."""
    from layoutlab.device.rpc import lease

    report("stage", name="measure")
    return lease.taken().take_samples(runner, Path(inputs), arguments, limit_s)


def remote_functions(
    report: Any, runner: dict[str, Any], inputs: str, arguments: dict[str, Any], limit_s: float
) -> dict[str, Any]:
    """`time_functions` on the leased device; the files are this machine's."""
    from layoutlab.device.rpc import lease

    report("stage", name="profile")
    return lease.taken().time_functions(runner, Path(inputs), arguments, limit_s)


VERBS: dict[str, Callable[..., Any]] = {
    "describe_host": describe_host,
    "describe_model": describe_model,
    "preflight": preflight,
    "bind_batch": bind_batch,
    "cut_model": cut_model,
    "hash_hook": hash_hook,
    "describe_relay": describe_relay,
    "compile_variant": compile_variant,
    "list_tasks": list_tasks,
    "find_shared": find_shared,
    "tune_variant": tune_variant,
    "explain_variant": explain_variant,
    "lay_out": lay_out,
    "mix_layouts": mix_layouts,
    "compute_outputs": compute_outputs,
    "take_samples": take_samples,
    "time_functions": time_functions,
    "build_kernels": build_kernels,
    "time_kernels": time_kernels,
    "release_core": release_core,
    "simulate_outputs": simulate_outputs,
    "simulate_inference": simulate_inference,
    "describe_remote": describe_remote,
    "lease_remote": lease_remote,
    "remote_outputs": remote_outputs,
    "remote_samples": remote_samples,
    "remote_functions": remote_functions,
    "remote_kernels": remote_kernels,
    "check_up_remote": check_up_remote,
    "survey_remote": survey_remote,
}
