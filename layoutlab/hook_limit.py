"""A user's hook that gives no answer costs its variant, and not the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from layoutlab.hooks import Conv, ConvLayout, Hook

# Hooks look at plain data; what takes longer than this, an import or one convolution, hangs.
ANSWER_S = 60.0


@contextmanager
def limited(report: Callable[..., Any], cause: str) -> Iterator[None]:
    """Tell the parent of this worker process how long to wait for what is done here, which is the user's code.

    It ends the process when the time is over, whatever happens in it meanwhile.
    """
    report("limit", seconds=ANSWER_S, cause=f"{cause} within {ANSWER_S:g} s")
    try:
        yield
    finally:
        report("limit", seconds=None, cause="")


@dataclass(frozen=True)
class Limited:
    """A hook whose answers may take so long."""

    hook: Hook
    report: Callable[..., Any]

    def __call__(self, conv: Conv) -> ConvLayout | None:
        """What the hook answers."""
        with limited(self.report, f"the hook gave no answer at conv {conv.index}"):
            return self.hook(conv)
