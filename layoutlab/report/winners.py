"""Which layout wins each convolution, and whether a mixture of the winners could pay.

The honest form of "take the cheapest layout per operator": the times are those of tuning candidates, measured
alone; where neighbours then differ in layout, transforms are needed, and they are counted and timed too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tabulate import tabulate

from layoutlab.device.base import DeviceKind
from layoutlab.device.rpc.address import RpcAddress
from layoutlab.engine.base import Artifact, ConvReport, HookOptions, LayoutReport, from_json, to_json
from layoutlab.errors import UsageError
from layoutlab.hooks import Rule
from layoutlab.model.resolve import bind_model, resolve_model
from layoutlab.process import run_job
from layoutlab.progress import Progress
from layoutlab.spec.load import LoadedSpec
from layoutlab.store import Store
from layoutlab.variants import compile_job, worker_environment


@dataclass(frozen=True, kw_only=True)
class Winners:
    """Times in microseconds, measured or simulated, by convolution and variant; winners, and what mixing them takes.

    `mixed` is what the layout engine makes of a graph in which each convolution has its winner's layout;
    `transform_us` is the time of the transforms that this leaves, each measured alone, untuned.
    """

    convs: tuple[ConvReport, ...]
    times_us: dict[str, tuple[float, ...]]
    winners: tuple[str, ...]
    mixed: LayoutReport
    transform_us: float
    simulated: bool = False

    def sum_us(self, variant: str) -> float:
        """Sum over all convolutions of one variant; not a latency."""
        return sum(self.times_us[variant])

    @property
    def winners_us(self) -> float:
        """Sum of the winners' times."""
        return sum(self.times_us[winner][index] for index, winner in enumerate(self.winners))


def find_winners(loaded: LoadedSpec, store: Store, progress: Progress) -> Winners:
    """Compare the tuned variants of the last run. Raises UsageError with fewer than two of them."""
    artifacts = _tuned_artifacts(store)
    if len(artifacts) < 2:
        raise UsageError(
            f"{store.folder} holds {len(artifacts)} completely tuned variants: winners need two, so run the spec first"
        )
    times = {name: tuple(us for us in a.conv_us if us is not None) for name, a in artifacts.items()}
    convs = next(iter(artifacts.values())).convs
    winners = tuple(min(times, key=lambda name: times[name][index]) for index in range(len(convs)))
    progress.show("the transforms that a mixture needs")
    rules = _rules([artifacts[winner].convs[index] for index, winner in enumerate(winners)])
    run = store.all("run")[-1]
    model = resolve_model(loaded, progress)
    kind, rpc = _device(run)
    variant = loaded.spec.variants[0].model_copy(update={"convert_layout": None})
    with tempfile.TemporaryDirectory(prefix="layoutlab-") as folder:
        model = bind_model(model, loaded.spec.model.batch, Path(folder))
        job = compile_job(loaded, variant, model.path, run["target"], Path(folder), (), kind, rpc=rpc)
        job = replace(job, hook=HookOptions(label="winners", name=None, rules=rules))
        log = store.folder / "logs" / "winners.log"
        found = run_job("mix_layouts", {"job": to_json(job)}, log=log, environment=worker_environment(loaded))
    return Winners(
        convs=convs,
        times_us=times,
        winners=winners,
        mixed=from_json(LayoutReport, found["layouts"]),
        transform_us=found["transform_us"],
        simulated=kind == "kryo",
    )


def _device(run: dict[str, Any]) -> tuple[DeviceKind, RpcAddress | None]:
    """What a run was on; runs of earlier versions knew no devices over RPC."""
    if run.get("rpc"):
        return "rpc", from_json(RpcAddress, run["rpc"])
    return ("kryo" if run.get("simulated") else "host"), None


def _tuned_artifacts(store: Store) -> dict[str, Artifact]:
    """By variant, in the order of the last run: the artifacts that have a time for each convolution."""
    found = {}
    for event in store.last_run():
        if event["kind"] == "uses" and (built := store.find("built", key=event["built"])):
            artifact = from_json(Artifact, built["artifact"])
            if artifact.convs and len(artifact.convs) == len(artifact.conv_us) and None not in artifact.conv_us:
                found[event["variant"]] = artifact
    return found


def _rules(reports: Sequence[ConvReport]) -> tuple[Rule, ...]:
    """A table that gives each convolution the layout its report ends with."""
    layouts: dict[str, list[int]] = {}
    for report in reports:
        layouts.setdefault(report.after.split("->")[-1], []).append(report.conv.index)
    return tuple(Rule(layout=layout, indices=tuple(indices)) for layout, indices in layouts.items())


def winners_text(name: str, found: Winners) -> str:
    """The table, convolution by convolution, and the sentence that weighs the mixture."""
    rows = [_row(found, index) for index in range(len(found.convs))]
    rows.append(
        {
            "conv": "sum",
            "kernel": "",
            "channels": "",
            **{v: f"{found.sum_us(v):.0f}" for v in found.times_us},
            "winner": "",
        }
    )
    align = ["right", "left", "left", *["right"] * len(found.times_us), "left"]
    table = tabulate(rows, headers="keys", tablefmt="simple", disable_numparse=True, colalign=align)
    unit = "simulated us" if found.simulated else "us"
    return "\n".join(
        [
            f"{name}: best time of each convolution in the tuning records, in {unit}, with what is fused into it",
            "",
            table,
            "",
            *_weigh(found),
            "These are candidates run alone: their sums say which layout suits which convolution, not how long "
            "the network takes.",
            "",
        ]
    )


def _row(found: Winners, index: int) -> dict[str, str]:
    conv = found.convs[index].conv
    return {
        "conv": str(index),
        "kernel": "x".join(map(str, conv.kernel_size)) + (" depthwise" if conv.is_depthwise else ""),
        "channels": f"{conv.in_channels} -> {conv.out_channels}",
        **{variant: f"{times[index]:.1f}" for variant, times in found.times_us.items()},
        "winner": found.winners[index],
    }


def _weigh(found: Winners) -> list[str]:
    counts = {variant: found.winners.count(variant) for variant in found.times_us}
    wins = ", ".join(f"{variant} {count}" for variant, count in counts.items())
    moving = [transform for transform in found.mixed.census_after.transforms if transform.moved_bytes]
    moved = sum(transform.moved_bytes for transform in moving)
    best = min(found.times_us, key=found.sum_us)
    mixture = found.winners_us + found.transform_us
    verdict = "could pay" if mixture < found.sum_us(best) else "would not pay"
    return [
        f"wins: {wins}. The winners sum to {found.winners_us:.0f} us; mixing them needs {len(moving)} transforms that "
        f"move {moved / 1e6:.2f} MB",
        f"and take {found.transform_us:.0f} us, each alone and untuned: {mixture:.0f} us together, against "
        f"{found.sum_us(best):.0f} us for {best} alone. Mixing {verdict}.",
    ]
