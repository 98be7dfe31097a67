"""What the pool's processes do with one candidate for the simulated core: build it, count it, price the counts."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layoutlab.device.kryo.core import PricedCore

# A candidate that takes longer than this under qemu, which runs it some hundred times slower than a Kryo core would.
_RUN_S = 20.0
# A process starts its core with its first candidate.
CORE_START_S = 60.0


def simulate_candidate(
    module_json: str, target: dict[str, Any], folder: str, arguments: list[tuple[str, tuple[int, ...]]]
) -> float:
    """Seconds of one call at the core's clock, with cold caches; `arguments` are (dtype, shape) of each tensor."""
    from layoutlab.engine.relax.tune.candidates import build_candidate

    path = build_candidate(module_json, target, folder, "kryo")
    try:
        return _core().run_candidate(Path(path), arguments, _RUN_S).ms / 1e3
    finally:
        os.unlink(path)


@functools.cache
def _core() -> PricedCore:
    """This process' own core."""
    from layoutlab.device.kryo.core import PricedCore
    from layoutlab.device.kryo.installed import require

    return PricedCore(require(), log=sys.stderr)
