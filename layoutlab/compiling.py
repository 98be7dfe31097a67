"""One variant's records and library: what they belong to, where records come from, and the job that makes both."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layoutlab.begin import Run
from layoutlab.engine.base import STOPPED_EARLY, Artifact, BorrowedRecords, CompileJob, from_json, to_json
from layoutlab.process import run_job
from layoutlab.progress import TuningLine, duration
from layoutlab.records.identity import Identity, record_versions
from layoutlab.records.start import find_records, repair_and_say
from layoutlab.spec.models import VariantSpec
from layoutlab.spent import additional_trials, count_records, tuned_since
from layoutlab.tuning_progress import keep_progress
from layoutlab.variants import autotvm_logs, compile_job, users_hook, worker_environment

# The fields of `tuning` that say how much of a variant is tuned.
_BUDGET = ("trials", "time_limit_s", "early_stop", "skip")
# What only concerns the Relay engine.
_AUTOTVM = ("tuner", "graph_tuner", "logs")


@dataclass(frozen=True, kw_only=True)
class VariantRecords:
    """A variant's records: their folder, what they belong to, and where they were taken over from, if they were."""

    folder: Path
    identity: Identity
    origin: Mapping[str, str] | None

    @property
    def key(self) -> str:
        """What stands for the records in events and in the folder's name."""
        return self.identity.key()


def compile_variant(run: Run, variant: VariantSpec, heading: str) -> Artifact:
    """Import, change layouts, tune and build one variant, unless that is done already."""
    records = find_variant_records(run, variant, heading)
    key = _built_key(run, variant, records)
    budget = run.spec.tuning.model_dump(mode="json", include=set(_BUDGET)) if variant.tune else None
    run.store.append(
        "uses",
        variant=variant.name,
        built=key,
        budget=budget,
        hook_sha256=records.identity.hook_sha256,
        folder=records.folder.name,
        origin=records.origin,
        lent=[loan.note(records.identity) for loan in run.lent] if variant.tune else [],
    )
    built = run.store.find("built", key=key, budget=budget)
    if built and not tuned_since(run.store, records.key, built):
        artifact = from_json(Artifact, built["artifact"])
        # Where the folder of results is now: it may have been moved since.
        library = records.folder.resolve() / Path(artifact.path).name
        if library.is_file() and file_sha256(library) == artifact.sha256:
            return replace(artifact, path=str(library))
    job = variant_job(run, variant, records)
    begun, known = time.monotonic(), count_records(records.folder)
    artifact = from_json(Artifact, do_job(run, variant, heading, "compile_variant", job=to_json(job)))
    run.store.append(
        "built",
        variant=variant.name,
        key=key,
        budget=budget,
        artifact=to_json(artifact),
        new_trials=max(0, count_records(records.folder) - known),
        took_s=round(time.monotonic() - begun, 2),
    )
    stopped = f" (stopped by {artifact.tuning_ended})" if artifact.tuning_ended in STOPPED_EARLY else ""
    tuned = f"tuned in {duration(artifact.tune_s)}{stopped}, " if variant.tune else ""
    run.progress.say(f"{heading}: {tuned}built in {duration(artifact.build_s)}")
    return artifact


def find_variant_records(run: Run, variant: VariantSpec, heading: str) -> VariantRecords:
    """The variant's folder, with its own records or those that it goes on from; says where these come from.

    Raises StageError when the folder holds records of something else.
    """
    identity = _identity(run, variant)
    folder = run.store.folder / f"{variant.name}-{identity.key()}"
    folder.mkdir(exist_ok=True)
    if not variant.tune:
        return VariantRecords(folder=folder, identity=identity, origin=None)
    found = find_records(folder, identity, run.store.folder.parent, run.loaded.path.parent / "records", run.fresh)
    if found.news:
        run.progress.say(f"{heading}: {found.news}")
    if found.taken_over and found.origin:
        run.store.append("records", variant=variant.name, source=found.origin["source"], origin=found.origin["kind"])
    return VariantRecords(folder=folder, identity=identity, origin=found.origin)


def variant_job(run: Run, variant: VariantSpec, records: VariantRecords) -> CompileJob:
    """The job of a variant in the folder of its records, which are repaired if a kill damaged them.

    Its budget is the spec's, and the trials that `layoutlab tune` made on top of it.
    """
    repair_and_say(records.folder, variant.name, run.store, run.progress)
    job = compile_job(
        run.loaded,
        variant,
        run.model,
        run.choice.target,
        records.folder,
        run.allowed,
        run.choice.device.kind,
        [BorrowedRecords(source=loan.source, folder=str(loan.folder)) for loan in run.lent] if variant.tune else [],
        run.choice.address,
    )
    trials = job.tuning.trials + additional_trials(run.store, records.key, records.folder)
    return replace(job, tuning=replace(job.tuning, trials=trials))


def do_job(run: Run, variant: VariantSpec, heading: str, verb: str, **arguments: Any) -> Any:
    """A worker's answer; meanwhile its stages and trials are shown."""
    line = TuningLine(heading)
    # Of a tuning of chosen tasks the sum is over these alone.
    whole = (arguments.get("request") or {}).get("tasks") is None

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "say":
            run.progress.say(f"{heading}: {event['text']}")
        elif event["event"] == "trials":
            run.progress.show(line.text(event))
            if whole:
                keep_progress(run.store, variant.name, Path(arguments["job"]["folder"]).name, event)
        else:
            run.progress.show(f"{heading}: {event['name']}")

    log, environment = run.log(variant.name), worker_environment(run.loaded)
    return run_job(verb, arguments, log=log, on_event=on_event, environment=environment)


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


def _identity(run: Run, variant: VariantSpec) -> Identity:
    """What the variant's records depend on: how far and where tuning went is left out, so that it can go on."""
    hook = variant.alter_op_layout
    tuning = run.spec.tuning.model_dump(mode="json", exclude={*_BUDGET, "workers", "pack_weights", *_AUTOTVM})
    if variant.name in run.engines and run.spec.tuning.tuner is not None:
        tuning["tuner"] = run.spec.tuning.tuner
    if run.choice.address is not None:
        # There is more than one kind of core on most phones.
        tuning["cores"] = run.spec.measure.model_dump(mode="json")["cores"]
    return Identity(
        device=run.choice.device.name,
        simulated=run.choice.device.simulated,
        target=run.choice.target,
        versions=_record_versions(run, variant),
        model_sha256=run.model_sha256,
        convert_layout=variant.convert_layout,
        hook=hook.model_dump(mode="json", exclude_none=True) if hook else None,
        hook_sha256=_hook_sha256(run, variant),
        pack_weights=run.spec.tuning.pack_weights,
        tuning=tuning if variant.tune else None,
        fuse=variant.fuse,
        passes=None if variant.passes.is_default else variant.passes.model_dump(mode="json", exclude_defaults=True),
        engine="relay" if variant.name in run.engines else None,
    )


def _engine_key(run: Run, variant: VariantSpec) -> dict[str, Any]:
    """What the library of another engine's variant depends on besides."""
    engine = run.engines.get(variant.name)
    if engine is None:
        return {}
    logs = [file_sha256(path) for path in autotvm_logs(run.loaded)]
    graph_tuner = {"graph_tuner": True} if run.spec.tuning.graph_tuner else {}
    return {"engine": engine.line, **({"logs": logs} if logs else {}), **graph_tuner}


def _record_versions(run: Run, variant: VariantSpec) -> dict[str, str]:
    """The versions that the variant's records depend on, with another engine's TVM in the place of ours."""
    versions = record_versions(run.versions)
    engine = run.engines.get(variant.name)
    if engine is None:
        return versions
    tophub = {"tophub": "used"} if run.spec.engine_of(variant).tophub else {}
    ours = {name: version for name, version in versions.items() if not name.startswith("apache-tvm")}
    return {**ours, "relay": engine.version, **tophub}


def _built_key(run: Run, variant: VariantSpec, records: VariantRecords) -> str:
    """What the variant's library depends on: its records, those it may borrow, and every version."""
    return hash_json(
        {
            "records": records.key,
            "origin": records.origin,
            "lent": [[loan.source, loan.sha256] for loan in run.lent] if variant.tune else [],
            "versions": run.versions,
            **_engine_key(run, variant),
        }
    )


def hash_json(data: Any) -> str:
    """Twelve hex digits of the hash of JSON data."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
