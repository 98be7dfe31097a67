"""Changing the layout of a whole graph: every convolution as decided, everything between as cheaply as possible.

TVM's ConvertLayout stops at operators it has no rule for (pad, clip, prelu, packed softmax, ...) and transposes back
and forth around them. Here a tensor keeps the storage it was made with for as long as the operators that read it can
be written for it. A transform is made where two storages meet, or where an operator needs the tensor as it was
imported: once for all readers, and recorded with the operator that forced it. Where it leaves memory as it is (axes
of extent 1, channels in one block) it is a reshape and moves nothing.

The rules for single operators are in `rules.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from layoutlab.engine.base import LayoutTransform
from layoutlab.engine.relax.layout import rules
from layoutlab.engine.relax.layout.canonicalise import is_constant
from layoutlab.engine.relax.layout.plan import Decision, op_name, static_shape
from layoutlab.engine.relax.layout.storage import Shape, Storage, same_memory
from layoutlab.engine.relax.provenance.marks import LAYOUT, Marks, marked, marks_of


@dataclass(frozen=True)
class Value:
    """A tensor of the new graph: its expression, how it is stored, its logical shape, and the op that made it."""

    expr: relax.Expr
    storage: Storage
    shape: Shape
    maker: str


class Graph:
    """The new graph while it is being made: tensors by their variable in the old one, and transforms made."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.builder = builder
        self.transforms: list[LayoutTransform] = []
        self._values: dict[relax.Var, Value] = {}
        self._tuples: dict[relax.Var, list[relax.Expr]] = {}
        self._stored: dict[tuple[relax.Var, Storage], relax.Expr] = {}

    def set(self, variable: relax.Var, expr: relax.Expr, storage: Storage, maker: str) -> None:
        """Note that the old `variable` is now `expr`, stored so."""
        shape = static_shape(variable)
        self._values[variable] = Value(expr, storage.for_shape(shape), shape, maker)

    def set_tuple(self, variable: relax.Var, fields: Sequence[relax.Expr]) -> None:
        """Note that the old `variable` stands for a tuple of old expressions."""
        self._tuples[variable] = list(fields)

    def fields(self, expr: relax.Expr) -> list[relax.Expr] | None:
        """The old expressions of a tuple, written in place or bound to a variable; None for anything else."""
        if isinstance(expr, relax.Tuple):
            return list(expr.fields)
        return self._tuples.get(expr)

    def storage(self, expr: relax.Expr) -> Storage:
        """How an old tensor is stored now; constants and whatever is no tensor of ours: as imported."""
        value = self._values.get(expr)
        return value.storage if value else Storage.plain(len(static_shape(expr)))

    def get(self, expr: relax.Expr, storage: Storage, reader: str) -> relax.Expr:
        """The old tensor `expr`, stored as `storage`; `reader` is the operator that wants it so.

        Constants are rewritten at once. For tensors a transform is emitted unless one was made before.
        """
        storage = storage.for_shape(static_shape(expr))
        if is_constant(expr):
            return expr if storage.is_plain else relax.const(storage.store(expr.value.numpy()), str(expr.ty.dtype))
        value = self._values[expr]
        if value.storage == storage:
            return value.expr
        key = (expr, storage)
        if key not in self._stored:
            self._stored[key] = self._transform(value, storage, reader)
        return self._stored[key]

    def as_imported(self, expr: relax.Expr, reader: str) -> relax.Expr:
        """Any old expression for use by an operator without a rule: its tensors as they were imported."""
        fields = self.fields(expr)
        if fields is not None:
            return relax.Tuple([self.as_imported(field, reader) for field in fields])
        if expr in self._values:
            return self.get(expr, Storage.plain(len(self._values[expr].shape)), reader)
        return expr

    def _transform(self, value: Value, storage: Storage, reader: str) -> relax.Expr:
        if value.storage.padded(value.shape):
            value = self._without_padding(value, reader)
            if value.storage == storage:
                return value.expr
        free = same_memory(value.storage, storage, value.shape)
        if free:
            op, made = "reshape", relax.op.reshape(value.expr, storage.shape(value.shape))
        elif value.storage.split is None and storage.split is None:
            axes = [value.storage.order.index(axis) for axis in storage.order]
            op, made = "permute_dims", relax.op.permute_dims(value.expr, axes)
        else:
            fill = 0.0 if storage.padded(value.shape) else None
            index_map = _index_map(value.storage, storage)
            op, made = "layout_transform", relax.op.layout_transform(value.expr, index_map, pad_value=fill)
        return self._emit(op, made, value, storage, storage.shape(value.shape), reader, moves=not free)

    def _without_padding(self, value: Value, reader: str) -> Value:
        """The tensor in the same order of axes, unsplit, cut to its logical shape."""
        unsplit, split = Storage(value.storage.order), value.storage.split
        assert split is not None
        full = [
            extent if axis != split else -(-extent // value.storage.block) * value.storage.block
            for axis, extent in enumerate(value.shape)
        ]
        merged = relax.op.layout_transform(value.expr, _index_map(value.storage, unsplit))
        expr = self._emit("layout_transform", merged, value, unsplit, unsplit.shape(tuple(full)), reader, moves=True)
        cut = relax.op.strided_slice(expr, [unsplit.order.index(split)], [0], [value.shape[split]])
        cut = marked(cut, (f"strided_slice {_letters(value.storage)}->{_letters(unsplit)}", *_layout_mark(unsplit)))
        return Value(self.builder.emit(cut), unsplit, value.shape, value.maker)

    def _emit(
        self, op: str, made: relax.Expr, value: Value, storage: Storage, shape: Shape, reader: str, moves: bool
    ) -> relax.Expr:
        stored = value.storage.shape(value.shape)
        size = np.dtype(str(value.expr.ty.dtype)).itemsize
        moved = (math.prod(stored) + math.prod(shape)) * size if moves else 0
        self.transforms.append(
            LayoutTransform(
                op=op, after=value.maker, before=reader, from_shape=stored, to_shape=shape, moved_bytes=moved
            )
        )
        mark = f"{op} {_letters(value.storage)}->{_letters(storage)}"
        return self.builder.emit(marked(made, (mark, *_layout_mark(storage))))


def _letters(storage: Storage) -> str:
    """The layout string of an image; A, B, C ... for the axes of a tensor of another rank."""
    return storage.layout("NHWC" if len(storage.order) == 4 else "ABCDEFGH"[: len(storage.order)])


def _layout_mark(storage: Storage) -> Marks:
    return (LAYOUT + _letters(storage),) if len(storage.order) == 4 else ()


def _index_map(source: Storage, target: Storage) -> tvm.tirx.IndexMap:
    rank = len(source.order) + (source.split is not None)
    return tvm.tirx.IndexMap.from_func(lambda *stored: source.indices(stored, target), ndim=rank, index_dtype="int64")


def propagate(mod: tvm.IRModule, decisions: Sequence[Decision]) -> tuple[tvm.IRModule, list[LayoutTransform]]:
    """Rewrite `main` so that each convolution has its decided layout; inputs and outputs keep theirs.

    Returns the new module and every transform that is left, in execution order.
    """
    old = mod["main"]
    builder = relax.BlockBuilder()
    parameters = [relax.Var(parameter.name, parameter.ty) for parameter in old.params]
    graph = Graph(builder)
    convs = iter(decisions)
    with builder.function("main", parameters, attrs=_attributes(old)):
        with builder.dataflow():
            for before, now in zip(old.params, parameters, strict=True):
                graph.set(before, now, Storage.plain(len(static_shape(before))), "input")
            for block in old.body.blocks:
                for binding in block.bindings:
                    _rewrite(graph, binding, convs)
            output = builder.emit_output(graph.as_imported(old.body.body, "output"))
        builder.emit_func_output(output)
    return builder.get(), graph.transforms


def _attributes(function: relax.Function) -> dict[str, object]:
    """What later passes read; the importer's copy of all weights is left behind."""
    return {"num_input": function.attrs["num_input"]} if function.attrs and "num_input" in function.attrs else {}


def _rewrite(graph: Graph, binding: relax.Binding, convs: Iterator[Decision]) -> None:
    variable, value = binding.var, binding.value
    if isinstance(value, relax.Tuple):
        graph.set_tuple(variable, value.fields)
    elif isinstance(value, relax.Call):
        name = op_name(value)
        decision = next(convs) if name == "nn.conv2d" else None
        made = rules.apply(graph, value, name, decision)
        if made is None:
            arguments = [graph.as_imported(argument, name) for argument in value.args]
            call = relax.Call(value.op, arguments, value.attrs, value.ty_args)
            made = call, Storage.plain(len(static_shape(variable)))
        marks = (*marks_of(value), *_layout_mark(made[1]))
        graph.set(variable, graph.builder.emit(marked(made[0], marks)), made[1], name)
    else:
        expr = graph.builder.emit(graph.as_imported(value, "output"))
        graph.set(variable, expr, Storage.plain(len(static_shape(variable))), "alias")
