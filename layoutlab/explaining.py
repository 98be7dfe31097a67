"""`layoutlab profile --explain`: experiments with a finished run's slowest functions, and what they say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layoutlab.device.base import DeviceKind
from layoutlab.device.rpc.address import RpcAddress
from layoutlab.engine.base import Artifact, BorrowedRecords, CompileJob, from_json, to_json
from layoutlab.engine.explanation import ExplainRequest, FunctionExperiments
from layoutlab.errors import LayoutlabError, StageError, UsageError
from layoutlab.model.resolve import bind_model, resolve_model
from layoutlab.process import run_job
from layoutlab.profiling import profile_spec
from layoutlab.progress import Progress
from layoutlab.report.causes import ExplainedRow, explained
from layoutlab.report.profile_data import Profile, ProfileRow
from layoutlab.spec.load import LoadedSpec
from layoutlab.spec.models import Spec, VariantSpec
from layoutlab.store import Store
from layoutlab.variants import compile_job, require_allowed, worker_environment


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What was found out about a variant's functions: those that are flagged and the `top` slowest, longest first."""

    variant: str
    device: str
    simulated: bool
    end_to_end_ms: float
    top: int
    rows: tuple[ExplainedRow, ...]


def explain_spec(
    loaded: LoadedSpec, results: Path, progress: Progress, allowed: Sequence[str], top: int = 0
) -> Iterator[tuple[str, tuple[Profile, Explanation] | LayoutlabError]]:
    """The profile of each variant of the spec's last run, and why its functions take as long, or why there is neither.

    Experiments are made with the functions that the profile flags, and the `top` slowest. Raises what `profile_spec`
    does, UsageError for hooks that are not allowed.
    """
    require_allowed(loaded, allowed)
    profiles = dict(profile_spec(loaded, results, progress))
    with Store(results / "runs" / loaded.spec.name) as store:
        run = _ExplainedRun(loaded, store, progress, allowed)
        for name, profile in profiles.items():
            if isinstance(profile, LayoutlabError):
                yield name, profile
                continue
            try:
                yield name, (profile, run.explain(profile, top))
            except (StageError, UsageError) as error:
                yield name, error


class _ExplainedRun:
    """A finished run, and what is needed to make its variants again."""

    def __init__(self, loaded: LoadedSpec, store: Store, progress: Progress, allowed: Sequence[str]) -> None:
        self._store, self._progress, self._allowed = store, progress, allowed
        self._events = store.last_run()
        # As it was run: the file may have changed since.
        spec = Spec.model_validate(self._events[0]["spec"])
        self._loaded = replace(loaded, spec=spec)
        found = resolve_model(self._loaded, progress)
        if found.sha256 != self._events[0]["model_sha256"]:
            raise UsageError(f"{found.path} is not the model of the last run: layoutlab run {loaded.path} again")
        self._model = bind_model(found, spec.model.batch, store.folder).path

    def explain(self, profile: Profile, top: int) -> Explanation:
        chosen = _chosen(profile, top)
        variant = next(one for one in self._loaded.spec.variants if one.name == profile.variant)
        artifact = self._artifact(variant.name)
        found = self._experiments(variant, artifact, [row.function for row in chosen]) if chosen else {}
        tasks = {task.name: task for task in artifact.tasks}
        tuned_cold = profile.simulated or self._loaded.spec.tuning.cold_cache
        return Explanation(
            variant=variant.name,
            device=profile.device,
            simulated=profile.simulated,
            end_to_end_ms=profile.end_to_end_ms,
            top=top,
            rows=tuple(explained(row, tasks.get(row.task or ""), found[row.function], tuned_cold) for row in chosen),
        )

    def _experiments(
        self, variant: VariantSpec, artifact: Artifact, functions: Sequence[str]
    ) -> dict[str, FunctionExperiments]:
        request = ExplainRequest(
            functions=tuple(dict.fromkeys(functions)),
            promised_us={task.name: task.best_us for task in artifact.tasks},
            unfused_records=tuple(self._unfused_records(variant)),
        )
        self._progress.show(f"{variant.name}: experiments with {len(request.functions)} functions")
        found = run_job(
            "explain_variant",
            {"job": to_json(self._job(variant)), "request": to_json(request)},
            log=self._store.folder / "logs" / f"{variant.name}.log",
            on_event=self._say,
            environment=worker_environment(self._loaded),
        )
        return {one["function"]: from_json(FunctionExperiments, one) for one in found}

    def _say(self, event: dict[str, Any]) -> None:
        if event["event"] == "say":
            self._progress.say(event["text"])

    def _job(self, variant: VariantSpec) -> CompileJob:
        event, uses = self._events[0], self._uses(variant.name)
        lent = [
            BorrowedRecords(source=one["source"], folder=str(self._folder("borrowed", one["sha256"][:12])))
            for one in uses.get("lent", ())
        ]
        kind, rpc = _place(event)
        folder = self._folder(uses["folder"])
        target = dict(event["target"])
        return compile_job(
            self._loaded, variant, self._model, target, folder, self._allowed, kind, borrowed=lent, rpc=rpc
        )

    def _uses(self, variant: str) -> Mapping[str, Any]:
        return next(one for one in self._events if one["kind"] == "uses" and one["variant"] == variant)

    def _artifact(self, variant: str) -> Artifact:
        uses = self._uses(variant)
        built = self._store.find("built", key=uses["built"], budget=uses["budget"])
        assert built is not None  # it was profiled
        return from_json(Artifact, built["artifact"])

    def _unfused_records(self, variant: VariantSpec) -> Iterator[str]:
        """Folders with records of the same variant without fusion, which the spec may have."""
        for other in self._loaded.spec.variants:
            same = {"name": variant.name, "fuse": variant.fuse}
            if other.tune and not other.fuse and other.model_copy(update=same) == variant:
                folder = next((e["folder"] for e in self._events if _is_use(e, other.name)), None)
                if folder is not None and other.name != variant.name:
                    yield str(self._folder(folder))

    def _folder(self, *names: str) -> Path:
        return self._store.folder.joinpath(*names).resolve()


def _is_use(event: Mapping[str, Any], variant: str) -> bool:
    return event["kind"] == "uses" and event["variant"] == variant


def _place(event: Mapping[str, Any]) -> tuple[DeviceKind, RpcAddress | None]:
    """What the run was on."""
    if event.get("rpc"):
        return "rpc", from_json(RpcAddress, event["rpc"])
    return ("kryo" if event["simulated"] else "host"), None


def _chosen(profile: Profile, top: int) -> list[ProfileRow]:
    """The rows that are flagged, and the first `top`; longest first, as the profile has them."""
    return [row for place, row in enumerate(profile.rows) if row.slower or place < top]
