"""What a run of a spec would do, said without doing any of it."""

from __future__ import annotations

from pathlib import Path

from tabulate import tabulate

from layoutlab.device.choose import why_not_simulated
from layoutlab.engine.relay.begin import relay_pythons
from layoutlab.errors import DeviceError
from layoutlab.progress import duration
from layoutlab.report.estimate import estimate_text, least_s
from layoutlab.report.search import search_text
from layoutlab.spec.load import LoadedSpec
from layoutlab.spec.models import Spec, VariantSpec
from layoutlab.spec.target import format_target
from layoutlab.variants import compiled_otherwise


def plan_text(loaded: LoadedSpec, results: Path) -> str:
    """Variants, budgets, the protocol with its least duration, an estimate, and the files that will be written."""
    spec = loaded.spec
    rows = [_row(variant, spec.tuning.trials) for variant in spec.variants]
    engines = [spec.engine_of(variant).kind for variant in spec.variants]
    if "relay" in engines:
        rows = [{**row, "engine": engine} for row, engine in zip(rows, engines, strict=True)]
    target = spec.target if isinstance(spec.target, str) else format_target(spec.target)
    return "\n".join(
        [
            f"{spec.name}: {spec.model.build or loaded.model_path}",
            f"target {target}, device {spec.device}, {spec.threads} thread{'s' if spec.threads > 1 else ''}",
            "",
            tabulate(rows, headers="keys", tablefmt="simple", disable_numparse=True),
            "",
            *_relay(spec),
            *([f"tuning: {search_text(spec.tuning.model_dump())}"] if any(v.tune for v in spec.variants) else []),
            f"outputs checked on {spec.check.inputs} inputs",
            *_protocol(spec),
            estimate_text(loaded, results),
            f"writes {results / spec.name}/table.md, table.csv, table.json, coverage.csv, pairs.csv, report.html; "
            f"keeps records in {results / 'runs' / spec.name}/",
            "",
        ]
    )


def _relay(spec: Spec) -> list[str]:
    """Which interpreters compile, or how to get one: what a run would fail for."""
    try:
        pythons = relay_pythons(spec)
    except DeviceError as error:
        return [f"it cannot run yet: {error}"]
    return [f"engine relay: {python}" for python in dict.fromkeys(pythons.values())]


def _protocol(spec: Spec) -> list[str]:
    """How figures are obtained: measured, or counted where the simulated core stands in for the target."""
    measure, count = spec.measure, len(spec.variants)
    rows = f"{count} variant{'s' if count > 1 else ''} and TFLite"
    if spec.baseline.runtime == "benchmark_model":
        rows += " (benchmark_model)"
    total_s = measure.rounds * (len(spec.variants) + 1) * least_s(measure)
    measured = f"{measure.rounds} rounds of {rows}: at least {duration(total_s)}"
    if spec.device.address or spec.device.on == "host" or why_not_simulated(spec) is not None:
        return [measured]
    counted = f"one counted inference of {rows} on the simulated Kryo core"
    return [counted] if spec.device.on == "kryo" else [f"{counted}; where it cannot be had,", measured]


def _row(variant: VariantSpec, trials: int) -> dict[str, str]:
    return {
        "variant": variant.name,
        "convert_layout": variant.convert_layout or "-",
        "alter_op_layout": variant.alter_op_layout.label() if variant.alter_op_layout else "-",
        "trials": ", ".join([str(trials) if variant.tune else "untuned", *compiled_otherwise(variant)]),
    }
