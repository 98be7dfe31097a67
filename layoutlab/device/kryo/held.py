"""The simulated core that the jobs of a worker process share: starting one takes seconds. For worker processes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layoutlab.device.kryo.core import PricedCore

_held: PricedCore | None = None
_until_release = ExitStack()


def hold() -> None:
    """Start a core for the jobs that follow in this process."""
    global _held
    _held = _until_release.enter_context(_new_core())
    _held.core()


def release() -> None:
    """End the core that was held, and remove what it left."""
    global _held
    _held = None
    _until_release.close()


@contextlib.contextmanager
def core() -> Iterator[PricedCore]:
    """The core that is held, else one for this job alone."""
    if _held is not None:
        yield _held
        return
    with _new_core() as own:
        yield own


def _new_core() -> PricedCore:
    from layoutlab.device.kryo.core import PricedCore
    from layoutlab.device.kryo.installed import require

    return PricedCore(require(), sys.stderr)
