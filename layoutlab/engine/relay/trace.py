"""Where the operators of a model went in what Relay built, as the engine's provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from layoutlab.engine.provenance import AS_VIEW, UNKNOWN, ExecutedFunction, Operator, Provenance
from layoutlab.model.work import operators

_PREFIX = "tvmgen_default_"
_VIEWS = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")


def make_provenance(data: bytes, functions: Sequence[Mapping[str, Any]] | None) -> Provenance | None:
    """The provenance of a model `data` from what `inside.trace.list_executed` found; None where it found nothing."""
    if functions is None:
        return None
    ops = operators(data)
    homes = {op: node for node, function in enumerate(functions) for op in function["ops"]}
    executed = tuple(_executed(node, function, homes, ops) for node, function in enumerate(functions))
    removed = {op.index: AS_VIEW if op.type in _VIEWS else UNKNOWN for op in ops if op.index not in homes}
    return Provenance(operators=ops, functions=executed, removed=removed)


def _executed(
    node: int, function: Mapping[str, Any], homes: Mapping[int, int], ops: Sequence[Operator]
) -> ExecutedFunction:
    own = tuple(op for op in function["ops"] if homes[op] == node)
    return ExecutedFunction(
        node=node,
        function=str(function["name"]).removeprefix(_PREFIX),
        task=None,
        ops=own,
        parts=tuple(op for op in function["ops"] if homes[op] != node),
        transforms=tuple(function["transforms"]),
        shape=tuple(function["shape"]),
        dtype=function["dtype"],
        layout=function["layout"],
        flop=sum(ops[op].flop for op in own),
        bytes=function["bytes"],
    )
