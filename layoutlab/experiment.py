"""One experiment, top to bottom: spec -> model -> baseline -> variants -> rounds -> comparison -> report.

Every step leaves an event in the store before the next begins. A run that was interrupted, or a second run of the
same spec, finds the events and does only what is missing.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layoutlab.baseline.tflite import BASELINE, versions
from layoutlab.device.choose import Choice, choose
from layoutlab.device.kryo.provision import provision
from layoutlab.engine.base import Artifact, BorrowedRecords, from_json, to_json
from layoutlab.errors import (
    EXIT_VARIANT_FAILED,
    EXIT_WRONG_OUTPUTS,
    DeviceError,
    LayoutlabError,
    ModelError,
    StageError,
    WrongOutputs,
)
from layoutlab.model.file import ModelFile
from layoutlab.model.resolve import bind_model, resolve_model
from layoutlab.process import run_job
from layoutlab.progress import Progress, TuningLine, duration
from layoutlab.records.identity import Identity, record_versions
from layoutlab.records.sources import Lent, lend
from layoutlab.records.start import find_records, repair_and_say
from layoutlab.report.comparison import Comparison, compare
from layoutlab.report.files import write_results
from layoutlab.spec.load import LoadedSpec
from layoutlab.spec.models import Spec, VariantSpec
from layoutlab.store import Store
from layoutlab.variants import compile_job, require_allowed, users_hook, worker_environment


@dataclass(frozen=True, kw_only=True)
class Run:
    """What every step of one experiment needs to know."""

    loaded: LoadedSpec
    store: Store
    progress: Progress
    model: Path
    model_sha256: str
    choice: Choice
    allowed: tuple[str, ...]
    lent: tuple[Lent, ...] = ()
    fresh: bool = False

    @property
    def spec(self) -> Spec:
        """The spec."""
        return self.loaded.spec

    @property
    def inputs(self) -> Path:
        """The seeded inputs, as a file that worker processes read."""
        return self.store.folder / "inputs.npz"

    @property
    def versions(self) -> dict[str, str]:
        """Versions of everything a figure depends on."""
        return {**versions(), **self.choice.device.versions}

    @property
    def rounds(self) -> int:
        """Rounds of samples: one where figures repeat exactly."""
        return 1 if self.choice.device.simulated else self.spec.measure.rounds

    def log(self, name: str) -> Path:
        """Where a job's output goes."""
        return self.store.folder / "logs" / f"{name}.log"


def run_experiment(
    loaded: LoadedSpec,
    results: Path,
    progress: Progress,
    allowed: Sequence[str] = (),
    borrow: Sequence[Path] = (),
    fresh: bool = False,
) -> Comparison:
    """Run the spec, or what is left of it, and write the table under `results/<name>/`.

    `allowed` are the prefixes under which users' own hooks may run. `borrow` are folders of records of other devices,
    models or versions, for the tasks that have none of their own. With `fresh`, records of other runs and shipped
    ones are not taken over, and those that were are set aside.

    A variant that fails costs its own row; what fails before the first variant (the model, the device, TFLite
    itself) raises the error.
    """
    require_allowed(loaded, allowed)
    model = resolve_model(loaded, progress)
    with Store(results / "runs" / loaded.spec.name) as store:
        lent = lend(borrow, store.folder / "borrowed")
        run = replace(_begin(loaded, model, store, progress, tuple(allowed)), lent=lent, fresh=fresh)
        reference = _run_baseline(run)
        artifacts = {}
        for number, variant in enumerate(run.spec.variants, 1):
            heading = f"variant {number} of {len(run.spec.variants)} ({variant.name})"
            try:
                artifact = _compile(run, variant, heading)
                _check(run, variant, artifact, reference)
            except LayoutlabError as error:
                _record_failure(run, variant.name, error)
                progress.say(f"{heading}: failed: {error}")
            else:
                artifacts[variant.name] = artifact
        _measure(run, artifacts)
        comparison = compare(store)
    write_results(comparison, results / loaded.spec.name)
    return comparison


def _begin(loaded: LoadedSpec, model: ModelFile, store: Store, progress: Progress, allowed: tuple[str, ...]) -> Run:
    """The device and the inputs; what the run depends on is recorded."""
    choice = choose(loaded.spec, lambda: _host_target(store), lambda: provision(progress.say, progress.show))
    progress.say(f"device {loaded.spec.device}: {choice.reason}")
    bound = bind_model(model, loaded.spec.model.batch, store.folder)
    run = Run(
        loaded=loaded,
        store=store,
        progress=progress,
        model=bound.path,
        model_sha256=bound.sha256,
        choice=choice,
        allowed=allowed,
    )
    store.append(
        "run",
        spec=loaded.spec.model_dump(mode="json"),
        model=model.path.name,
        model_sha256=model.sha256,
        model_bytes=len(model.data),
        batch=loaded.spec.model.batch,
        target=choice.target,
        device=choice.device.name,
        device_reason=choice.reason,
        simulated=choice.device.simulated,
        rounds=run.rounds,
        threads=loaded.spec.threads,
        versions=run.versions,
    )
    _write_inputs(run)
    return run


def _host_target(store: Store) -> dict[str, Any]:
    try:
        return dict(run_job("describe_host", {}, log=store.folder / "logs" / "host.log", timeout_s=120))
    except StageError as error:
        raise DeviceError(f"TVM does not start on this machine: {error}") from error


def _write_inputs(run: Run) -> None:
    from layoutlab.measure.inputs import make_inputs, save_sets

    description = run_job("describe_model", {"path": str(run.model)}, log=run.log("model"), timeout_s=120)
    dynamic = [tensor["name"] for tensor in description["inputs"] if -1 in tensor["shape"]]
    if dynamic:
        raise ModelError(
            f"{run.model}: input {', '.join(dynamic)} has a dynamic shape, and layouts are chosen for fixed ones. "
            "Bind a dynamic batch with model.batch in the spec; convert the model anew for any other dimension"
        )
    check = run.spec.check
    sets = make_inputs(description["inputs"], run.spec.model.input_range, check.inputs, check.seed)
    save_sets(run.inputs, sets)


def _run_baseline(run: Run) -> Path:
    """TFLite's outputs for every input set: the reference of all variants. Returns their file."""
    outputs = run.store.folder / "reference.npz"
    key = _hash({"model": run.model_sha256, "inputs": _file_sha256(run.inputs), "versions": run.versions})
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
    return {"kind": "artifact", "path": artifact.path, "threads": run.spec.threads}


def _compile(run: Run, variant: VariantSpec, heading: str) -> Artifact:
    """Import, change layouts, tune and build one variant, unless that is done already."""
    hook_sha256 = _hook_sha256(run, variant)
    identity = _identity(run, variant, hook_sha256)
    folder = run.store.folder / f"{variant.name}-{identity.key()}"
    folder.mkdir(exist_ok=True)
    origin = _find_records(run, variant, identity, folder, heading) if variant.tune else None
    lent = run.lent if variant.tune else ()
    key = _built_key(run, identity, origin, lent)
    budget = run.spec.tuning.model_dump(mode="json", include=set(_BUDGET)) if variant.tune else None
    run.store.append(
        "uses",
        variant=variant.name,
        built=key,
        budget=budget,
        hook_sha256=hook_sha256,
        folder=folder.name,
        origin=origin,
        lent=[loan.note(identity) for loan in lent],
    )
    built = run.store.find("built", key=key, budget=budget)
    if built:
        artifact = from_json(Artifact, built["artifact"])
        if Path(artifact.path).is_file() and _file_sha256(Path(artifact.path)) == artifact.sha256:
            return artifact
    repair_and_say(folder, variant.name, run.store, run.progress)
    job = compile_job(
        run.loaded,
        variant,
        run.model,
        run.choice.target,
        folder,
        run.allowed,
        run.choice.device.kind,
        [BorrowedRecords(source=loan.source, folder=str(loan.folder)) for loan in lent],
    )
    line = TuningLine(heading)

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "trials":
            run.progress.show(line.text(event))
        else:
            run.progress.show(f"{heading}: {event['name']}")

    value = run_job(
        "compile_variant",
        {"job": to_json(job)},
        log=run.log(variant.name),
        on_event=on_event,
        environment=worker_environment(run.loaded),
    )
    artifact = from_json(Artifact, value)
    run.store.append("built", variant=variant.name, key=key, budget=budget, artifact=to_json(artifact))
    tuned = f"tuned in {duration(artifact.tune_s)}, " if variant.tune else ""
    run.progress.say(f"{heading}: {tuned}built in {duration(artifact.build_s)}")
    return artifact


def _find_records(
    run: Run, variant: VariantSpec, identity: Identity, folder: Path, heading: str
) -> dict[str, str] | None:
    """Records for the variant to go on from; returns where they were taken over from, if they were."""
    found = find_records(folder, identity, run.store.folder.parent, run.loaded.path.parent / "records", run.fresh)
    if found.news:
        run.progress.say(f"{heading}: {found.news}")
    if found.taken_over and found.origin:
        run.store.append("records", variant=variant.name, source=found.origin["source"], origin=found.origin["kind"])
    return found.origin


def _hook_sha256(run: Run, variant: VariantSpec) -> str | None:
    """Hash of the source of a user's own hook."""
    name = users_hook(variant)
    if name is None:
        return None
    return str(
        run_job(
            "hash_hook",
            {"name": name, "allowed": run.allowed},
            log=run.log(variant.name),
            environment=worker_environment(run.loaded),
            timeout_s=60,
        )
    )


# The fields of `tuning` that say how much of a variant is tuned.
_BUDGET = ("trials", "time_limit_s", "early_stop", "skip")


def _identity(run: Run, variant: VariantSpec, hook_sha256: str | None) -> Identity:
    """What the variant's records depend on: how far and where tuning went is left out, so that it can go on."""
    hook = variant.alter_op_layout
    tuning = run.spec.tuning.model_dump(mode="json", exclude={*_BUDGET, "workers", "pack_weights"})
    return Identity(
        device=run.choice.device.name,
        simulated=run.choice.device.simulated,
        target=run.choice.target,
        versions=record_versions(run.versions),
        model_sha256=run.model_sha256,
        convert_layout=variant.convert_layout,
        hook=hook.model_dump(mode="json", exclude_none=True) if hook else None,
        hook_sha256=hook_sha256,
        pack_weights=run.spec.tuning.pack_weights,
        tuning=tuning if variant.tune else None,
    )


def _built_key(run: Run, identity: Identity, origin: Mapping[str, str] | None, lent: Sequence[Lent]) -> str:
    """What the variant's library depends on: its records, those it may borrow, and every version."""
    return _hash(
        {
            "records": identity.key(),
            "origin": origin,
            "lent": [[loan.source, loan.sha256] for loan in lent],
            "versions": run.versions,
        }
    )


def _check(run: Run, variant: VariantSpec, artifact: Artifact, reference: Path) -> None:
    """Compare the variant's outputs with TFLite's; raises WrongOutputs when they differ."""
    from layoutlab.measure.inputs import load_sets
    from layoutlab.measure.numerics import Check, check

    tolerances = {"rtol": run.spec.check.rtol, "atol": run.spec.check.atol}
    key = _hash({"artifact": artifact.sha256, "reference": _file_sha256(reference), **tolerances})
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
        error = StageError("hook", str(error))
    exit_code = EXIT_WRONG_OUTPUTS if isinstance(error, WrongOutputs) else EXIT_VARIANT_FAILED
    run.store.append(
        "failed", variant=variant, stage=error.stage, cause=error.cause, log=error.log, exit_code=exit_code
    )


def _measure(run: Run, artifacts: Mapping[str, Artifact]) -> None:
    """Rounds of all rows interleaved, in an order that is new in each round and the same in each run.

    A row that fails in one round is dropped from the rounds that follow: its samples would not be comparable.
    """
    runners = {BASELINE: _baseline_runner(run)}
    runners |= {name: _artifact_runner(run, artifact) for name, artifact in artifacts.items()}
    protocol = _protocol_key(run, artifacts)
    measure = run.spec.measure
    for number in range(run.rounds):
        order = list(runners)
        random.Random(f"{measure.seed}/{number}").shuffle(order)
        for row in order:
            if run.store.find("samples", protocol=protocol, round=number, row=row):
                continue
            run.progress.show(f"measuring: round {number + 1} of {run.rounds}, {row}")
            try:
                taken = run.choice.device.take_samples(runners[row], run.inputs, measure, run.log(row))
            except StageError as error:
                if row == BASELINE:
                    raise
                _record_failure(run, row, error)
                del runners[row]
                continue
            run.store.append("samples", protocol=protocol, round=number, row=row, **taken)
    run.store.append("finished", protocol=protocol)


def _protocol_key(run: Run, artifacts: Mapping[str, Artifact]) -> str:
    """Samples are comparable only when everything in here is the same."""
    return _hash(
        {
            "rows": {name: artifact.sha256 for name, artifact in artifacts.items()},
            "model": run.model_sha256,
            "inputs": _file_sha256(run.inputs),
            "threads": run.spec.threads,
            "device": run.choice.device.name,
            "versions": run.versions,
            "measure": run.spec.measure.model_dump(),
        }
    )


def _hash(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]


def _file_sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
