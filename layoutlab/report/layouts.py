"""What the variants of a spec do to a model's layouts, without tuning or running any of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from layoutlab.engine.base import Census, LayoutReport, from_json, to_json
from layoutlab.errors import StageError
from layoutlab.model.resolve import bind_model, resolve_model
from layoutlab.process import run_job
from layoutlab.progress import Progress
from layoutlab.spec.load import LoadedSpec
from layoutlab.variants import compile_job, require_allowed, worker_environment


def find_layouts(
    loaded: LoadedSpec, allowed: Sequence[str], progress: Progress
) -> Iterator[tuple[str, LayoutReport | StageError]]:
    """For each variant what it does, or why it cannot be done. `allowed` are prefixes of users' hooks."""
    require_allowed(loaded, allowed)
    model = resolve_model(loaded, progress)
    with tempfile.TemporaryDirectory(prefix="layoutlab-") as folder:
        log = Path(folder) / "layouts.log"
        model = bind_model(model, loaded.spec.model.batch, Path(folder))
        target = spec_target(loaded, log)
        for variant in loaded.spec.variants:
            progress.show(f"{variant.name}: layouts")
            job = compile_job(loaded, variant, model.path, target, Path(folder), allowed)
            try:
                value = run_job("lay_out", {"job": to_json(job)}, log=log, environment=worker_environment(loaded))
            except StageError as error:
                # The log goes with the folder: the cause has to say it all.
                yield variant.name, StageError(error.stage, error.cause)
            else:
                yield variant.name, from_json(LayoutReport, value)


def spec_target(loaded: LoadedSpec, log: Path) -> dict[str, Any]:
    """The spec's own target, even where its code would not run here: layouts need no device."""
    if loaded.spec.target != "host":
        return loaded.spec.target
    return dict(run_job("describe_host", {}, log=log, timeout_s=120))


def layouts_text(name: str, found: LayoutReport | StageError, ir: bool) -> str:
    """One variant as text: convolutions one by one, transforms with what forced them, and on request the IR."""
    if isinstance(found, StageError):
        return f"{name}: fails at {found.stage}: {found.cause}\n"
    parts = [
        f"{name}: {_census(found.census_before)} -> {_census(found.census_after)}",
        *(
            ["the model is quantised; it is computed in float32 between dequantize and quantize"]
            if found.dequantised
            else []
        ),
        "",
        _convs(found),
        "",
        *_transforms(found.census_after),
        "",
    ]
    if ir:
        parts += ["before:", "", found.ir_before, "", "after:", "", found.ir_after, ""]
    return "\n".join(parts)


def _census(census: Census) -> str:
    return ", ".join(f"{count} {layout}" for layout, count in census.conv_layouts.items()) or "no conv2d"


def _convs(found: LayoutReport) -> str:
    rows = [
        {
            "conv": str(report.conv.index),
            "kernel": "x".join(map(str, report.conv.kernel_size)) + (" depthwise" if report.conv.is_depthwise else ""),
            "stride": "x".join(map(str, report.conv.strides)),
            "groups": str(report.conv.groups),
            "channels": f"{report.conv.in_channels} -> {report.conv.out_channels}",
            "was": report.before,
            "hook": report.answer or "-",
            "is": report.after,
            "why": report.why,
        }
        for report in found.convs
    ]
    return tabulate(rows, headers="keys", tablefmt="simple", disable_numparse=True)


def _transforms(census: Census) -> list[str]:
    if not census.transforms:
        return ["no layout transform"]
    moved = sum(transform.moved_bytes for transform in census.transforms)
    lines = [f"{len(census.transforms)} layout transforms, {_size(moved)} moved:"]
    lines += [
        f"  {list(t.from_shape)} -> {list(t.to_shape)}, {_size(t.moved_bytes) if t.moved_bytes else 'free'}: "
        f"after {t.after}, for {t.before}"
        for t in census.transforms
    ]
    return lines


def _size(moved: int) -> str:
    if moved < 1000:
        return f"{moved} B"
    return f"{moved / 1e3:.0f} kB" if moved < 1e6 else f"{moved / 1e6:.1f} MB"
