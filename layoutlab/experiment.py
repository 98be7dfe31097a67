"""One experiment, top to bottom: spec -> model -> baseline -> variants -> rounds -> comparison -> report.

Every step leaves an event in the store before the next begins. A run that was interrupted, or a second run of the
same spec, finds the events and does only what is missing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from layoutlab.attempts import begin_again, measure_round, series_of
from layoutlab.baseline.tflite import BASELINE
from layoutlab.baseline.tool import ToolBaseline, open_tool_baseline, require_allowed_tool
from layoutlab.begin import Run, begin
from layoutlab.compiling import compile_variant, file_sha256, hash_json
from layoutlab.device.base import Leased
from layoutlab.engine.base import Artifact
from layoutlab.engine.relay.begin import relay_pythons
from layoutlab.errors import (
    EXIT_VARIANT_FAILED,
    EXIT_WRONG_OUTPUTS,
    DeviceError,
    DeviceLost,
    LayoutlabError,
    ModelError,
    StageError,
    WrongOutputs,
)
from layoutlab.model.resolve import resolve_model
from layoutlab.progress import Progress
from layoutlab.report.comparison import Comparison, compare
from layoutlab.report.files import write_results
from layoutlab.report.html.details import find_details
from layoutlab.spec.load import LoadedSpec
from layoutlab.spec.models import VariantSpec
from layoutlab.store import Store
from layoutlab.variants import require_allowed

# A device that goes away while it measures is replaced by another like it, so often in all.
_DEVICES_TRIED = 3


def run_experiment(
    loaded: LoadedSpec,
    results: Path,
    progress: Progress,
    allowed: Sequence[str] = (),
    borrow: Sequence[Path] = (),
    fresh: bool = False,
    inputs: Path | None = None,
    again: bool = False,
) -> Comparison:
    """Run the spec, or what is left of it, and write the table under `results/<name>/`.

    `allowed` are the prefixes under which users' own hooks may run; `borrow` has record sets for what has no record
    of its own; with `fresh` no records are taken over from other runs or from what is shipped. `inputs` is a file of
    input sets that stand in for the seeded ones. With `again` every round is taken anew.

    A variant that fails costs its own row; what fails before the first variant (the model, the device, TFLite
    itself) raises the error.
    """
    require_allowed(loaded, allowed)
    require_allowed_tool(loaded, allowed)
    relay_pythons(loaded.spec)
    model = resolve_model(loaded, progress)
    with Store(results / "runs" / loaded.spec.name, progress.record) as store:
        run = begin(loaded, model, store, progress, tuple(allowed), borrow=borrow, fresh=fresh, inputs=inputs)
        if again:
            begin_again(store)
        tool = open_tool_baseline(run)
        reference = _run_baseline(run)
        artifacts = {}
        for number, variant in enumerate(run.spec.variants, 1):
            heading = f"variant {number} of {len(run.spec.variants)} ({variant.name})"
            try:
                artifact = compile_variant(run, variant, heading)
                _check(run, variant, artifact, reference)
            except LayoutlabError as error:
                _record_failure(run, variant.name, error)
                progress.say(f"{heading}: failed: {error}")
            else:
                artifacts[variant.name] = artifact
        _measure(run, artifacts, tool)
        comparison, details = compare(store), find_details(store)
    write_results(comparison, results / loaded.spec.name, details)
    return comparison


def _run_baseline(run: Run) -> Path:
    """TFLite's outputs for every input set: the reference of all variants. Returns their file."""
    outputs = run.store.folder / "reference.npz"
    key = hash_json({"model": run.model_sha256, "inputs": file_sha256(run.inputs), "versions": run.versions})
    if run.store.find("baseline", key=key) and outputs.exists():
        return outputs
    run.progress.show("baseline: TFLite")
    try:
        done = run.choice.device.compute_outputs(_baseline_runner(run), run.inputs, outputs, run.log(BASELINE))
    except StageError as error:
        raise ModelError(f"TFLite does not run {run.model}: {error}") from error
    run.store.append("baseline", key=key, runtime=done["runtime"])
    run.progress.say(f"baseline: {done['runtime']}")
    return outputs


def _baseline_runner(run: Run) -> dict[str, Any]:
    return {"kind": "tflite", "path": str(run.model), "threads": run.spec.threads}


def _artifact_runner(run: Run, artifact: Artifact) -> dict[str, Any]:
    return {"kind": artifact.runner, "path": artifact.path, "threads": run.spec.threads}


def _check(run: Run, variant: VariantSpec, artifact: Artifact, reference: Path) -> None:
    """Compare the variant's outputs with TFLite's; raises WrongOutputs when they differ."""
    from layoutlab.measure.inputs import load_sets
    from layoutlab.measure.numerics import Check, check

    tolerances = {"rtol": run.spec.check.rtol, "atol": run.spec.check.atol}
    key = hash_json({"artifact": artifact.sha256, "reference": file_sha256(reference), **tolerances})
    known = run.store.find("checked", key=key)
    if known:
        result = Check(**known["check"])
    else:
        run.progress.show(f"{variant.name}: checking outputs")
        outputs = Path(artifact.path).with_name("outputs.npz")
        log = run.log(variant.name)
        try:
            run.choice.device.compute_outputs(_artifact_runner(run, artifact), run.inputs, outputs, log)
        except StageError as error:
            raise StageError("check", error.cause, str(log)) from error
        result = check(load_sets(outputs), load_sets(reference), **tolerances)
    run.store.append("checked", variant=variant.name, key=key, check=vars(result))
    if not result.ok:
        raise WrongOutputs("check", f"outputs differ from TFLite's: {result.problem}")


def _record_failure(run: Run, variant: str, error: LayoutlabError) -> None:
    """A failed variant ends the run with 4 when its outputs were wrong, else with 1."""
    if not isinstance(error, StageError):
        error = StageError("device" if isinstance(error, DeviceError) else "hook", str(error))
    exit_code = EXIT_WRONG_OUTPUTS if isinstance(error, WrongOutputs) else EXIT_VARIANT_FAILED
    run.store.append(
        "failed", variant=variant, stage=error.stage, cause=error.cause, log=error.log, exit_code=exit_code
    )


def _measure(run: Run, artifacts: Mapping[str, Artifact], tool: ToolBaseline | None) -> None:
    """All rounds on one device. When it goes away, they begin anew on another that is like it."""
    runners = {BASELINE: _baseline_runner(run)}
    runners |= {name: _artifact_runner(run, artifact) for name, artifact in artifacts.items()}
    versions = {name: artifact.sha256 for name, artifact in artifacts.items()}
    for left in reversed(range(_DEVICES_TRIED)):
        try:
            with run.choice.device.lease(run.log("device"), _device_of_last_round(run)) as device:
                _measure_on(run, device, runners, tool, _protocol_key(run, versions, device, tool))
            return
        except DeviceLost as error:
            if not left:
                raise
            run.progress.say(f"measuring: {error}; its rounds begin anew on another device")


def _measure_on(
    run: Run, device: Leased, runners: dict[str, dict[str, Any]], tool: ToolBaseline | None, protocol: str
) -> None:
    """Rounds of all rows interleaved, in an order that is new in each round and the same in each run.

    A row that fails in one round is dropped from the rounds that follow: its samples would not be comparable.
    """
    for number in range(run.rounds):
        order = list(runners)
        random.Random(f"{run.spec.measure.seed}/{number}").shuffle(order)
        for row in order:
            take = _taker(run, device, runners[row], tool if row == BASELINE else None, number, row)
            try:
                measure_round(
                    run.store,
                    run.progress,
                    f"measuring: round {number + 1} of {run.rounds}, {row}",
                    take,
                    run.spec.measure.retries,
                    protocol=protocol,
                    round=number,
                    row=row,
                    device=device.id,
                )
            except StageError as error:
                if row == BASELINE:
                    raise
                _record_failure(run, row, error)
                del runners[row]
    run.store.append("finished", protocol=protocol, device=device.id)


def _taker(
    run: Run, device: Leased, runner: dict[str, Any], tool: ToolBaseline | None, number: int, row: str
) -> Callable[[], dict[str, Any] | None]:
    """What takes a row's round once: `tool` if there is one, else the device."""
    if tool is not None:
        return lambda: tool.take_round(number)
    return lambda: device.take_samples(runner, run.inputs, run.spec.measure, run.log(row))


def _device_of_last_round(run: Run) -> str | None:
    """An interrupted measurement goes on where it was, if that device is free."""
    taken = run.store.all("samples")
    return taken[-1].get("device") if taken else None


def _protocol_key(run: Run, versions: Mapping[str, str], device: Leased, tool: ToolBaseline | None) -> str:
    """Samples are comparable only when everything in here is the same; `versions` are the sha256 of the artifacts."""
    one_of_several = {} if device.id is None else {"device_id": device.id}
    series = series_of(run.store)
    return hash_json(
        {
            **series,
            "rows": versions,
            "model": run.model_sha256,
            "inputs": file_sha256(run.inputs),
            "threads": run.spec.threads,
            "device": run.choice.device.name,
            "versions": run.versions,
            "measure": run.spec.measure.model_dump(),
            **one_of_several,
            **({"baseline": tool.key} if tool else {}),
        }
    )
