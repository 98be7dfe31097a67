"""Some operators of a .tflite file cut out of it, as a model of their own.

The file is read and written by LiteRT's own classes of the schema, so this is for worker processes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from layoutlab.errors import ModelError
from layoutlab.model.describe import describe
from layoutlab.model.file import IDENTIFIER

# They run other subgraphs, which a cut leaves behind.
_OF_SUBGRAPHS = frozenset({"CALL", "CALL_ONCE", "IF", "STABLEHLO_COMPOSITE", "WHILE"})


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A model cut out of another: its file, and what it was in the whole model.

    `ops` are numbers of operators; `inputs` and `outputs` numbers of tensors, in the order of the cut model's inputs
    and outputs.
    """

    data: bytes = field(repr=False)
    ops: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def cut(data: bytes, ops: Collection[int]) -> Cut:
    """Cut the operators `ops` out of the first subgraph of the model `data`.

    What lies between them comes along, and so does what computes constants for them, so that weights stay constant.
    Shapes, types, quantisation, names and fused activations are kept; signatures and metadata are not. Raises
    ModelError for a file that cannot be parsed, when there is no such operator, when an operator runs another subgraph
    or keeps a state, and when one of `ops` has a result that depends on no input: it is computed at compile time.
    """
    from ai_edge_litert import schema_py_generated as schema

    described = describe(data).ops
    for index in sorted(ops):
        if not 0 <= index < len(described):
            raise ModelError(
                f"there is no op {index}: the model has {len(described)} operators, 0 to {len(described) - 1}"
            )
    graph = _Graph(schema.ModelT.InitFromPackedBuf(data, 0))
    for index in sorted(ops):
        if not graph.is_live(index):
            raise ModelError(
                f"op {index} {described[index].type} depends on no input of the model: it is computed at compile time, "
                "and no layout and no tuning changes that"
            )
    chosen = graph.closed(ops)
    for index in chosen:
        graph.require_plain(index, described[index].type)
    inputs, outputs = graph.inputs_of(chosen), graph.outputs_of(chosen)
    return Cut(
        data=_write(schema, graph.model, data, chosen, inputs, outputs), ops=chosen, inputs=inputs, outputs=outputs
    )


class _Graph:
    """The first subgraph of a model, and which operator needs which."""

    def __init__(self, model: Any) -> None:
        self.model, self._graph = model, model.subgraphs[0]
        self._reads = [_tensors(op.inputs) for op in self._graph.operators]
        self._writes = [_tensors(op.outputs) for op in self._graph.operators]
        self._producer = {tensor: at for at, tensors in enumerate(self._writes) for tensor in tensors}
        live = set(_tensors(self._graph.inputs))
        for reads, writes in zip(self._reads, self._writes, strict=True):
            if live.intersection(reads):
                live.update(writes)
        self._live = live

    def is_live(self, index: int) -> bool:
        """Whether the operator's result depends on an input of the model."""
        return not self._live.isdisjoint(self._reads[index])

    def closed(self, ops: Collection[int]) -> tuple[int, ...]:
        """The operators, all on a path from one of them to another, and all that compute constants for these."""
        after, before = self._after(ops), self._before(ops)
        found = set(ops) | (after & before)
        waiting = [tensor for index in found for tensor in self._reads[index]]
        while waiting:
            tensor = waiting.pop()
            producer = self._producer.get(tensor)
            if tensor not in self._live and producer is not None and producer not in found:
                found.add(producer)
                waiting += self._reads[producer]
        return tuple(sorted(found))

    def _after(self, ops: Collection[int]) -> set[int]:
        """Operators that need a result of one of `ops`; operators stand in execution order."""
        reached = {tensor for index in ops for tensor in self._writes[index]}
        found = set()
        for index, reads in enumerate(self._reads):
            if reached.intersection(reads):
                found.add(index)
                reached.update(self._writes[index])
        return found

    def _before(self, ops: Collection[int]) -> set[int]:
        """Operators whose result one of `ops` needs."""
        needed = {tensor for index in ops for tensor in self._reads[index]}
        found = set()
        for index in reversed(range(len(self._writes))):
            if needed.intersection(self._writes[index]):
                found.add(index)
                needed.update(self._reads[index])
        return found

    def require_plain(self, index: int, type_: str) -> None:
        """Raise ModelError for an operator that is more than a function of its inputs."""
        if type_ in _OF_SUBGRAPHS:
            raise ModelError(f"op {index} {type_} runs another subgraph of the model, and cannot be cut out of it")
        tensors = [*self._reads[index], *self._writes[index]]
        if any(self._graph.tensors[tensor].isVariable for tensor in tensors):
            raise ModelError(f"op {index} {type_} keeps a state between inferences, and cannot be measured alone")

    def inputs_of(self, ops: Collection[int]) -> tuple[int, ...]:
        """Tensors that `ops` read and something else computes, in the order of their first use."""
        made = {tensor for index in ops for tensor in self._writes[index]}
        reads = (tensor for index in ops for tensor in self._reads[index])
        return tuple(dict.fromkeys(tensor for tensor in reads if tensor in self._live and tensor not in made))

    def outputs_of(self, ops: Collection[int]) -> tuple[int, ...]:
        """Tensors of `ops` that something else reads, or the caller; without any, what the last of them computes."""
        others = [reads for index, reads in enumerate(self._reads) if index not in ops]
        needed = {tensor for reads in [*others, _tensors(self._graph.outputs)] for tensor in reads}
        made = [tensor for index in ops for tensor in self._writes[index]]
        found = tuple(tensor for tensor in made if tensor in needed and tensor in self._live)
        return found or self._writes[max(ops)]


def _tensors(indices: Iterable[int] | None) -> tuple[int, ...]:
    """Numbers of tensors without those left out, which are -1."""
    return tuple(int(index) for index in ([] if indices is None else indices) if index >= 0)


def _write(
    schema: Any, model: Any, data: bytes, ops: Collection[int], inputs: Collection[int], outputs: Collection[int]
) -> bytes:
    """The file of a model with these operators alone; everything is numbered anew."""
    import flatbuffers

    whole = model.subgraphs[0]
    chosen = [whole.operators[index] for index in ops]
    used = [*inputs, *(tensor for op in chosen for tensor in (*_tensors(op.inputs), *_tensors(op.outputs)))]
    places = {tensor: place for place, tensor in enumerate(dict.fromkeys(used))}
    codes = {code: place for place, code in enumerate(dict.fromkeys(op.opcodeIndex for op in chosen))}
    buffers = [schema.BufferT()]  # the first is empty by the schema's convention
    graph = schema.SubGraphT()
    graph.name = whole.name
    graph.tensors = [whole.tensors[tensor] for tensor in places]
    for tensor in graph.tensors:
        content = _content(model.buffers[tensor.buffer], data)
        tensor.buffer = 0 if content is None else len(buffers)
        if content is not None:
            buffers.append(schema.BufferT())
            buffers[-1].data = content
    for op in chosen:
        op.opcodeIndex = codes[op.opcodeIndex]
        op.inputs = [places[index] if index >= 0 else -1 for index in ([] if op.inputs is None else op.inputs)]
        op.outputs = [places[index] for index in op.outputs]
        op.intermediates = None
    graph.operators = chosen
    graph.inputs, graph.outputs = ([places[tensor] for tensor in tensors] for tensors in (inputs, outputs))
    model.operatorCodes = [model.operatorCodes[code] for code in codes]
    model.subgraphs, model.buffers = [graph], buffers
    model.signatureDefs = model.metadata = model.metadataBuffer = None
    builder = flatbuffers.Builder()
    builder.Finish(model.Pack(builder), IDENTIFIER)
    return bytes(builder.Output())


def _content(buffer: Any, data: bytes) -> Any:
    """The bytes of a constant, which large files keep behind the flatbuffer; None for a tensor that has none."""
    if buffer.offset > 1:
        return list(data[buffer.offset : buffer.offset + buffer.size])
    return buffer.data if buffer.data is not None and len(buffer.data) else None
