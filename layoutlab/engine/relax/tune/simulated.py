"""What the pool's processes do with one candidate for the simulated core: count it, and price the counts."""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layoutlab.device.kryo.core import PricedCore
    from layoutlab.engine.relax.tune.candidates import Arguments

# A candidate that takes longer than this under qemu, which runs it some hundred times slower than a Kryo core would.
_RUN_S = 20.0
# A process starts its core with its first candidate; pricing the counts is in it too.
SIMULATION_S = _RUN_S + 70.0


def simulate_candidate(library: bytes, arguments: Arguments, folder: str) -> float:
    """Seconds of one call at the core's clock, with cold caches; the library lies in `folder` meanwhile."""
    with tempfile.NamedTemporaryFile(suffix=".so", dir=folder) as file:
        file.write(library)
        file.flush()
        return _core().run_candidate(Path(file.name), arguments, _RUN_S).ms / 1e3


@functools.cache
def _core() -> PricedCore:
    """This process' own core."""
    from layoutlab.device.kryo.core import PricedCore
    from layoutlab.device.kryo.installed import require

    return PricedCore(require(), log=sys.stderr)
