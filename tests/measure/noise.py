"""Made-up rounds whose noise is that of real ones."""

from __future__ import annotations

import json

import numpy as np

from ..conftest import TABLES

_TABLE = TABLES / "mobilenetv3_layouts_host" / "table.json"


class Noise:
    """Draws rounds: the deviations of a round from its row, and of a sample from its round, are those of real ones."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        rows = [np.log(rounds) for rounds in json.loads(_TABLE.read_text())["samples_ms"].values()]
        medians = [np.median(row, axis=1) for row in rows]
        # Deviations from a mean of n are too small by this.
        self._between = np.concatenate([(m - m.mean()) * np.sqrt(len(m) / (len(m) - 1)) for m in medians])
        self._within = np.concatenate([(row - m[:, None]).ravel() for row, m in zip(rows, medians, strict=True)])

    def rounds(self, ms: float, count: int, repeats: int = 10) -> list[list[float]]:
        between = self._rng.choice(self._between, (count, 1))
        return (ms * np.exp(between + self._rng.choice(self._within, (count, repeats)))).tolist()
