"""`layoutlab aa`: one artifact measured against itself, which shows how often this machine makes a verdict wrong."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tabulate import tabulate

from layoutlab.attempts import begin_again, measure_round, series_of
from layoutlab.begin import Run, begin
from layoutlab.compiling import compile_variant, hash_json
from layoutlab.engine.base import Artifact
from layoutlab.errors import DeviceError
from layoutlab.measure.stats import Ratio, ratio
from layoutlab.model.resolve import resolve_model
from layoutlab.progress import Progress
from layoutlab.report.files import write_texts
from layoutlab.report.pairs import ratio_text
from layoutlab.report.rounds import last_taken, rounds_of
from layoutlab.spec.load import LoadedSpec
from layoutlab.store import Store
from layoutlab.variants import require_allowed

_ROWS = ("one", "other")
_DIFFERENT = ("faster", "slower")
# What a 95 % interval allows.
_EXPECTED = 0.05


@dataclass(frozen=True, kw_only=True)
class SelfComparison:
    """One run: the ratio of the artifact to itself, and how many of its rounds stayed disturbed."""

    ratio: Ratio
    disturbed: int


@dataclass(frozen=True, kw_only=True)
class SelfCheck:
    """All runs of a variant against itself."""

    spec: str
    variant: str
    device: str
    rounds: int
    runs: tuple[SelfComparison, ...]

    @property
    def different(self) -> int:
        """How many runs called the artifact faster or slower than itself."""
        return sum(run.ratio.verdict in _DIFFERENT for run in self.runs)

    @property
    def judged(self) -> int:
        """How many runs got a verdict."""
        return sum(run.ratio.verdict != "unstable" for run in self.runs)

    @property
    def too_often(self) -> bool:
        """Whether that is more often than chance explains, if a run errs in 5 % (one-sided binomial test, 5 %)."""
        from scipy.stats import binomtest

        if not self.judged:
            return False
        return bool(binomtest(self.different, self.judged, _EXPECTED, alternative="greater").pvalue < _EXPECTED)


def check_itself(
    loaded: LoadedSpec, results: Path, progress: Progress, allowed: Sequence[str], runs: int, again: bool = False
) -> SelfCheck:
    """Measure the spec's first variant against itself `runs` times, each as a run of the spec measures two rows.

    It is tuned and built first if that is not done; with `again` every round is taken anew. Writes
    `aa.<variant>.csv` to the spec's results. Raises DeviceError for a simulated device, whose figures repeat exactly.
    """
    require_allowed(loaded, allowed)
    model = resolve_model(loaded, progress)
    with Store(results / "runs" / loaded.spec.name, progress.record) as store:
        run = begin(loaded, model, store, progress, tuple(allowed), kind="aa")
        if run.choice.device.simulated:
            raise DeviceError(
                f"{run.choice.device.name} is simulated: its figures repeat exactly, and need no such check"
            )
        if again:
            begin_again(store)
        variant = run.spec.variants[0]
        artifact = compile_variant(run, variant, variant.name)
        found = SelfCheck(
            spec=run.spec.name,
            variant=variant.name,
            device=run.choice.device.name,
            rounds=run.rounds,
            runs=tuple(_once(run, artifact, number, runs) for number in range(runs)),
        )
    write_texts({f"aa.{variant.name}.csv": self_check_csv(found)}, results / loaded.spec.name)
    return found


def _once(run: Run, artifact: Artifact, number: int, runs: int) -> SelfComparison:
    measure = run.spec.measure
    runner = {"kind": artifact.runner, "path": artifact.path, "threads": run.spec.threads}
    with run.choice.device.lease(run.log("device")) as device:
        key = {"aa": number, "artifact": artifact.sha256, "measure": measure.model_dump(), "threads": run.spec.threads}
        protocol = hash_json({**series_of(run.store), **key, "device": run.choice.device.name, "device_id": device.id})
        for at in range(run.rounds):
            order = list(_ROWS)
            random.Random(f"{measure.seed}/{number}/{at}").shuffle(order)
            for row in order:
                measure_round(
                    run.store,
                    run.progress,
                    f"run {number + 1} of {runs}: round {at + 1} of {run.rounds}, {row}",
                    lambda: device.take_samples(runner, run.inputs, measure, run.log("aa")),
                    measure.retries,
                    protocol=protocol,
                    round=at,
                    row=row,
                    device=device.id,
                )
    return _compare(run, protocol)


def _compare(run: Run, protocol: str) -> SelfComparison:
    taken = last_taken(run.store.all("samples", protocol=protocol))
    measure = run.spec.measure
    one, other = ([event["samples_ms"] for event in taken if event["row"] == row] for row in _ROWS)
    rounds = [rounds_of(row, taken, measure.model_dump(), run.spec.threads) for row in _ROWS]
    found = ratio(one, other, measure.seed, doubtful=any(row.doubtful for row in rounds))
    return SelfComparison(ratio=found, disturbed=sum(len(row.disturbed) for row in rounds))


def self_check_text(found: SelfCheck) -> str:
    """A table of the runs, and what they come to."""
    rows = [
        (str(number), ratio_text(run.ratio), run.ratio.verdict, f"{run.disturbed} of {len(_ROWS) * found.rounds}")
        for number, run in enumerate(found.runs, 1)
    ]
    table = tabulate(
        rows,
        headers=("run", "takes x itself [95 %]", "verdict", "disturbed"),
        disable_numparse=True,
        colalign=("right", "right", "right", "right"),
    )
    heading = f"{found.spec}: {found.variant} against itself on {found.device}, {found.rounds} rounds a run"
    return "\n".join([heading, "", table, "", *_conclusion(found), ""])


def _conclusion(found: SelfCheck) -> list[str]:
    said = []
    if found.judged:
        said.append(
            f"called different: {found.different} of {found.judged} runs "
            f"({100 * found.different / found.judged:.0f} %), where {100 * _EXPECTED:.0f} % are to be expected at most"
        )
    unstable = len(found.runs) - found.judged
    if unstable:
        said.append(
            f"without a verdict: {unstable} of {len(found.runs)} runs: something disturbed the machine, or rounds "
            "spread. They say nothing; give the machine nothing else to do, and check with --again"
        )
    if found.too_often:
        said.append("That is more than chance explains: trust no small difference measured here")
    return said


def self_check_csv(found: SelfCheck) -> str:
    """One line a run, numbers unrounded."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("run", "variant", "ratio", "ratio_low", "ratio_high", "verdict", "rounds_disturbed"))
    for number, run in enumerate(found.runs, 1):
        one = run.ratio
        writer.writerow((number, found.variant, one.value, one.low, one.high, one.verdict, run.disturbed))
    return buffer.getvalue()


def self_check_json(found: SelfCheck) -> str:
    """Everything, as JSON text."""
    return json.dumps({"format": 1, **asdict(found), "called_different": found.different}, indent=1) + "\n"
