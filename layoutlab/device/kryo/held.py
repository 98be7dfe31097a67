"""The simulated core that the jobs of a worker process share: starting one takes seconds. For worker processes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layoutlab.device.kryo.core import PricedCore

_held: PricedCore | None = None


def core() -> PricedCore:
    """This process' core, which starts when it is first used."""
    global _held
    if _held is None:
        from layoutlab.device.kryo.core import PricedCore
        from layoutlab.device.kryo.installed import require

        _held = PricedCore(require(), sys.stderr)
    return _held


def release() -> None:
    """End the core, and remove what it left."""
    if _held is not None:
        _held.close()
