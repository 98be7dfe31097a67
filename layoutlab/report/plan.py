"""What a run of a spec would do, said without doing any of it."""

from __future__ import annotations

from pathlib import Path

from tabulate import tabulate

from layoutlab.device.choose import why_not_simulated
from layoutlab.progress import duration
from layoutlab.spec.load import LoadedSpec
from layoutlab.spec.models import Spec, VariantSpec
from layoutlab.spec.target import format_target


def plan_text(loaded: LoadedSpec, results: Path) -> str:
    """Variants, budgets, the protocol with its least duration, and the files that will be written."""
    spec = loaded.spec
    rows = [_row(variant, spec.tuning.trials) for variant in spec.variants]
    measure = spec.measure
    round_s = (measure.warmup_ms + measure.repeats * measure.min_repeat_ms) / 1e3
    total_s = measure.rounds * (len(spec.variants) + 1) * round_s
    target = spec.target if isinstance(spec.target, str) else format_target(spec.target)
    return "\n".join(
        [
            f"{spec.name}: {spec.model.build or loaded.model_path}",
            f"target {target}, device {spec.device}, {spec.threads} thread{'s' if spec.threads > 1 else ''}",
            "",
            tabulate(rows, headers="keys", tablefmt="simple", disable_numparse=True),
            "",
            f"outputs checked on {spec.check.inputs} inputs",
            *_simulated(spec),
            f"{measure.rounds} rounds of {len(spec.variants)} variants and TFLite: at least {duration(total_s)}",
            f"writes {results / spec.name}/table.md, table.csv, table.json; keeps records in "
            f"{results / 'runs' / spec.name}/",
            "",
        ]
    )


def _simulated(spec: Spec) -> list[str]:
    """What is done instead of rounds where the simulated core stands in for the target."""
    if spec.device == "host" or why_not_simulated(spec) is not None:
        return []
    return [f"on the simulated Kryo core one counted inference of {len(spec.variants)} variants and TFLite; elsewhere"]


def _row(variant: VariantSpec, trials: int) -> dict[str, str]:
    return {
        "variant": variant.name,
        "convert_layout": variant.convert_layout or "-",
        "alter_op_layout": variant.alter_op_layout.label() if variant.alter_op_layout else "-",
        "trials": str(trials) if variant.tune else "untuned",
    }
