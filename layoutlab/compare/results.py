"""The results of finished runs, as `table.json` has them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layoutlab.baseline.tflite import BASELINE
from layoutlab.errors import UsageError
from layoutlab.measure.stats import Latency, Ratio, exact_ratio, ratio, trimmed

_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Result:
    """A finished run: where its table.json is, and what is in it."""

    path: Path
    data: dict[str, Any]

    @property
    def spec(self) -> str:
        """Name of the spec."""
        return str(self.data["name"])

    @property
    def run(self) -> dict[str, Any]:
        """Model, device, target, versions."""
        return dict(self.data["run"])

    @property
    def simulated(self) -> bool:
        """Whether the figures are those of a simulated core."""
        return bool(self.run.get("simulated"))

    @property
    def rows(self) -> tuple[ResultRow, ...]:
        """Its rows, the baseline last."""
        return tuple(ResultRow(result=self, data=row) for row in self.data["rows"])

    @property
    def baseline(self) -> ResultRow:
        """TFLite's row."""
        return next(row for row in self.rows if row.name == BASELINE)


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One row of a result."""

    result: Result
    data: dict[str, Any]

    @property
    def name(self) -> str:
        """The variant, or the baseline's name."""
        return str(self.data["name"])

    @property
    def latency(self) -> Latency | None:
        """As measured; None for simulated and failed rows."""
        return Latency(**self.data["latency"]) if self.data["latency"] else None

    @property
    def ms(self) -> float | None:
        """The time of one inference, measured or simulated; None for a failed row."""
        if self.data["latency"]:
            return float(self.data["latency"]["median_ms"])
        return float(self.data["simulated"]["ms"]) if self.data.get("simulated") else None

    @property
    def to_tflite(self) -> Ratio | None:
        """The ratio to TFLite in the same run."""
        return Ratio(**self.data["ratio"]) if self.data["ratio"] else None

    @property
    def flags(self) -> tuple[str, ...]:
        """What the reader has to know."""
        return tuple(self.data["flags"])

    @property
    def failure(self) -> str | None:
        """Stage and cause, where it failed."""
        failure = self.data["failure"]
        return f"{failure['stage']}: {failure['cause']}" if failure else None

    @property
    def samples_ms(self) -> list[list[float]] | None:
        """Samples by round; None when there are none."""
        samples: list[list[float]] | None = self.result.data["samples_ms"].get(self.name)
        return samples

    @property
    def doubtful(self) -> bool:
        """Whether too many of its rounds were disturbed."""
        rounds = self.data.get("rounds")
        return rounds is not None and len(rounds["disturbed"]) > trimmed(rounds["rounds"])


def row_ratio(one: ResultRow, two: ResultRow, doubtful: bool = False) -> Ratio | None:
    """How many times the latency of `two` that `one` takes, for rows of two runs; None when one of them failed."""
    if one.ms is None or two.ms is None:
        return None
    if one.samples_ms is None or two.samples_ms is None:
        return exact_ratio(one.ms / two.ms)
    unsure = doubtful or one.doubtful or two.doubtful
    same = one.result is two.result
    seed = int(one.result.data["measure"]["seed"])
    return ratio(one.samples_ms, two.samples_ms, seed, paired=same, doubtful=unsure)


def read_results(names: Sequence[str], folder: Path) -> list[Result]:
    """The results of specs (name or file), folders and table.json files; `folder` holds those of specs.

    Raises UsageError for what is not there or no table of this layoutlab.
    """
    return [_read(_find(name, folder)) for name in names]


def _find(name: str, folder: Path) -> Path:
    path = Path(name)
    if path.is_dir():
        path = path / "table.json"
    elif path.suffix in (".yaml", ".yml"):
        path = folder / path.stem / "table.json"
    elif path.suffix != ".json":
        path = folder / name / "table.json"
    if not path.is_file():
        raise UsageError(
            f"{name}: no result at {path}. Give a spec that was run, a folder with a table.json, or such a file"
        )
    return path


def _read(path: Path) -> Result:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(data, dict) or data.get("format") != _FORMAT or "rows" not in data:
        raise UsageError(f"{path} is no table of format {_FORMAT}: give the table.json that layoutlab run writes")
    return Result(path=path, data=data)
