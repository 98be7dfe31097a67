"""The graph that a Relay-era TVM writes beside its code, and its weights, as plain data.

The formats are TVM's own: `graph.json` of its graph executor, `params.bin` of `relay.save_param_dict`. Only numpy is
imported: a device has no more.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layoutlab.errors import DeviceError

# Function of a call that does nothing: its output is its input under another shape.
_NOTHING = "__nop"

# kTVMNDArrayListMagic and kTVMNDArrayMagic of TVM's src/runtime.
_LIST_MAGIC = 0xF7E58D4F05049CB7
_ARRAY_MAGIC = 0xDD5E40F096B4A13F
# DLDataTypeCode of DLPack.
_CODES = {0: "int", 1: "uint", 2: "float"}
_NUMBERS = {name: code for code, name in _CODES.items()}


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A value in the graph; values of one `storage` share their memory, one after the other."""

    shape: tuple[int, ...]
    dtype: str
    storage: int

    @property
    def bytes(self) -> int:
        """Bytes that it needs."""
        return math.prod(self.shape) * element_bytes(self.dtype)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a function of the library: the numbers of its tensors, inputs first, then outputs.

    `flat`: the function takes all of them with one dimension.
    """

    function: str
    tensors: tuple[int, ...]
    flat: bool


@dataclass(frozen=True, kw_only=True)
class Graph:
    """What an inference is: `calls` one after the other; `inputs` and `params` by name, `outputs` in order.

    Values are numbers of `tensors`.
    """

    tensors: tuple[Tensor, ...]
    calls: tuple[Call, ...]
    inputs: Mapping[str, int]
    outputs: tuple[int, ...]

    def storage_bytes(self) -> dict[int, int]:
        """Bytes of each storage: those of the largest tensor in it."""
        found: dict[int, int] = {}
        for tensor in self.tensors:
            found[tensor.storage] = max(found.get(tensor.storage, 0), tensor.bytes)
        return found


def read_graph(graph: Mapping[str, Any]) -> Graph:
    """The graph of a parsed `graph.json`. Raises DeviceError for what cannot run in one library on one CPU."""
    attributes, first = graph["attrs"], graph["node_row_ptr"]
    # Each attribute is [name of its type, values].
    columns = zip(attributes["shape"][1], attributes["dltype"][1], attributes["storage_id"][1], strict=True)
    tensors = tuple(Tensor(shape=tuple(shape), dtype=dtype, storage=storage) for shape, dtype, storage in columns)

    def number(entry: Sequence[int]) -> int:
        node, output, *_ = entry
        return int(first[node] + output)

    nodes = graph["nodes"]
    calls = [
        _read_call(node["attrs"], [number(entry) for entry in node["inputs"]], first[at])
        for at, node in enumerate(nodes)
        if node["op"] != "null"
    ]
    return Graph(
        tensors=tensors,
        calls=tuple(call for call in calls if call.function != _NOTHING),
        inputs={nodes[node]["name"]: int(first[node]) for node in graph["arg_nodes"]},
        outputs=tuple(number(entry) for entry in graph["heads"]),
    )


def _read_call(attributes: Mapping[str, str], inputs: list[int], first: int) -> Call:
    function = attributes["func_name"]
    if function == "__copy":
        raise DeviceError("the graph copies between devices: build it for one CPU alone")
    outputs = range(first, first + int(attributes["num_outputs"]))
    return Call(function=function, tensors=(*inputs, *outputs), flat=attributes.get("flatten_data") == "1")


def dl_type(dtype: str) -> tuple[int, int, int]:
    """(code, bits, lanes) of DLPack for TVM's name of a type, such as float32. Raises DeviceError for others."""
    if dtype == "bool":
        return _NUMBERS["uint"], 1, 1
    found = re.fullmatch(r"(int|uint|float)(\d+)", dtype)
    if found is None:
        raise DeviceError(f"the graph has values of type {dtype}, which numpy does not know")
    return _NUMBERS[found[1]], int(found[2]), 1


def element_bytes(dtype: str) -> int:
    """Bytes of one element."""
    return -(-dl_type(dtype)[1] // 8)


def read_params(data: memoryview) -> dict[str, np.ndarray]:
    """The weights of `params.bin` by name, as views of `data`. Raises DeviceError when it is no such file."""
    reader = _Reader(data)
    if reader.number("Q") != _LIST_MAGIC:
        raise DeviceError("the weights are not as relay.save_param_dict writes them: build the variant again")
    reader.number("Q")
    names = [bytes(reader.take(reader.number("Q"))).decode() for _ in range(reader.number("Q"))]
    arrays = [_read_array(reader) for _ in range(reader.number("Q"))]
    return dict(zip(names, arrays, strict=True))


def _read_array(reader: _Reader) -> np.ndarray:
    if reader.number("Q") != _ARRAY_MAGIC:
        raise DeviceError("the weights are damaged: build the variant again")
    reader.number("Q")
    # The device that they were on.
    reader.take(8)
    dimensions = reader.number("i")
    code, bits, _ = reader.number("B"), reader.number("B"), reader.number("H")
    shape = [reader.number("q") for _ in range(dimensions)]
    data = reader.take(reader.number("q"))
    dtype = "bool" if (code, bits) == (_NUMBERS["uint"], 1) else f"{_CODES[code]}{bits}"
    return np.frombuffer(data, dtype).reshape(shape)


class _Reader:
    """Numbers and bytes, one after the other; all are little-endian."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> memoryview:
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, kind: str) -> int:
        return int(struct.unpack(f"<{kind}", self.take(struct.calcsize(f"<{kind}")))[0])
