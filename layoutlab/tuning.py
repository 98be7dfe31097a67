"""`layoutlab tune`: a spec's variants, or some tasks of them, tuned without checking or measuring anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from layoutlab.begin import Run, begin
from layoutlab.compiling import do_job, find_variant_records, variant_job
from layoutlab.engine.base import TuneRequest, TuneResult, from_json, to_json
from layoutlab.errors import LayoutlabError, UsageError
from layoutlab.model.resolve import resolve_model
from layoutlab.progress import Progress
from layoutlab.spec.load import LoadedSpec
from layoutlab.spec.models import VariantSpec
from layoutlab.spent import begin_tuning, end_tuning
from layoutlab.store import Store
from layoutlab.variants import require_allowed


def tune_spec(
    loaded: LoadedSpec,
    results: Path,
    progress: Progress,
    allowed: Sequence[str],
    request: TuneRequest,
    time_limit_s: int | None = None,
    fresh: bool = False,
) -> Iterator[tuple[str, TuneResult | LayoutlabError]]:
    """For each tuned variant what its tuning brought, or why it failed; the records are those that `run` builds with.

    `time_limit_s` stands in for the spec's. `fresh`: no records are taken over from elsewhere. Raises UsageError when
    no variant of the spec is tuned.
    """
    variants = [variant for variant in loaded.spec.variants if variant.tune]
    if not variants:
        names = ", ".join(variant.name for variant in loaded.spec.variants)
        raise UsageError(f"{loaded.path}: nothing to tune, {names} has tune: false")
    require_allowed(loaded, allowed)
    model = resolve_model(loaded, progress)
    with Store(results / "runs" / loaded.spec.name, progress.record) as store:
        run = begin(loaded, model, store, progress, tuple(allowed), "tune", fresh=fresh)
        for variant in variants:
            try:
                yield variant.name, _tune(run, variant, request, time_limit_s)
            except LayoutlabError as error:
                yield variant.name, error


def _tune(run: Run, variant: VariantSpec, request: TuneRequest, time_limit_s: int | None) -> TuneResult:
    records = find_variant_records(run, variant, variant.name)
    key = records.key
    job = variant_job(run, variant, records)
    if time_limit_s is not None:
        job = replace(job, tuning=replace(job.tuning, time_limit_s=time_limit_s))
    begin_tuning(run.store, variant.name, key, Path(job.folder), request.additional)
    value = do_job(run, variant, variant.name, "tune_variant", job=to_json(job), request=to_json(request))
    result = from_json(TuneResult, value)
    end_tuning(run.store, variant.name, key, request.additional, result)
    return result
