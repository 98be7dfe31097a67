"""Whether TVM can import a model, as plain data: what is wrong with it, all of it, and what is in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from layoutlab.model.describe import TensorInfo


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that keeps TVM from importing a model.

    With `op`, it is the operator of that index in `subgraph`, of TFLite's type `type`, whose first output is
    `output` of shape `shape` (both None for an operator without outputs). With `input`, it is the model's input of
    that name. With neither, it is the model as a whole.
    """

    reason: str
    op: int | None = None
    subgraph: int = 0
    type: str | None = None
    output: str | None = None
    shape: tuple[int, ...] | None = None
    input: str | None = None

    def place(self) -> str:
        """`op 3 RNN, output x [1, 16]`, `input x`, or `the model`."""
        if self.input is not None:
            return f"input {self.input}"
        if self.op is None:
            return "the model"
        within = f" of subgraph {self.subgraph}" if self.subgraph else ""
        output = "" if self.shape is None else f", output {self.output} {list(self.shape)}"
        return f"op {self.op}{within} {self.type}{output}"


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """A model's inputs, outputs and number of operators by type, and its problems; none means it can be imported."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    op_counts: dict[str, int]
    problems: tuple[Problem, ...]

    @property
    def is_importable(self) -> bool:
        """Whether TVM imports the model."""
        return not self.problems


def by_reason(problems: Iterable[Problem]) -> dict[str, list[Problem]]:
    """The problems of each reason, in the order in which they were found."""
    groups: dict[str, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(problem.reason, []).append(problem)
    return groups
