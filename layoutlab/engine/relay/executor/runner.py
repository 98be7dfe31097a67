"""Runs a library of `link.link_artifact`: the graph executor of a Relay-era TVM, without that TVM.

Only numpy is imported, and nothing of TVM: this runs on any device, in the same processes as everything else there.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from layoutlab.device import runners
from layoutlab.engine.relay.executor.graph import Call, Graph, Tensor, dl_type, read_graph, read_params
from layoutlab.errors import DeviceError

KIND = "relay_artifact"

# TVM aligns tensors to this (kAllocAlignment), and the code that it makes relies on it.
_ALIGNMENT = 64
# kTVMDLTensorHandle of TVM's c_runtime_api.h: the argument is a DLTensor.
_TENSOR = 7
_CPU = 1
# What TVM puts before the name of every function of a graph.
_PREFIX = "tvmgen_default_"


class _DLTensor(ctypes.Structure):
    """DLTensor of DLPack as Relay-era TVMs have it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class _Call(ctypes.Structure):
    """`struct call` of runtime.c."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("codes", ctypes.c_void_p),
        ("count", ctypes.c_int32),
    )


class Memory:
    """One piece of memory in which everything has its place: where that is depends on the graph alone."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        """`sizes` are the bytes of each storage."""
        self._places: dict[int, int] = {}
        end = 0
        for storage, size in sorted(sizes.items()):
            self._places[storage] = end
            end += -(-size // _ALIGNMENT) * _ALIGNMENT
        self._memory = mmap.mmap(-1, max(end, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def view(self, tensor: Tensor) -> np.ndarray:
        """The tensor's values, which can be changed."""
        count = int(np.prod(tensor.shape, dtype=np.int64))
        flat = np.frombuffer(self._memory, tensor.dtype, count, self._places[tensor.storage])
        return flat.reshape(tensor.shape)


class Calls:
    """Calls of a library's functions with tensors that stay where they are."""

    def __init__(self, library: ctypes.CDLL, calls: Sequence[tuple[str, Sequence[np.ndarray]]]) -> None:
        """Each of `calls` is a function's name and its tensors. Raises DeviceError when there is no such function."""
        self._library = library
        # As profiles and messages name them.
        self._names = [name.removeprefix(_PREFIX) for name, _ in calls]
        # What C is given by address has to be kept by someone.
        self._kept: list[Any] = []
        self._calls = (_Call * len(calls))(*(self._call(name, tensors) for name, tensors in calls))
        self._elapsed_ns = (ctypes.c_longlong * len(calls))()

    def run(self) -> None:
        """All of them, one after the other. Raises DeviceError when one fails."""
        failed = self._library.layoutlab_run(self._calls, len(self._calls))
        if failed:
            self._fail(failed)

    def run_timed(self) -> list[tuple[str, int]]:
        """As `run`; the name of each and its nanoseconds."""
        failed = self._library.layoutlab_run_timed(self._calls, len(self._calls), self._elapsed_ns)
        if failed:
            self._fail(failed)
        return list(zip(self._names, self._elapsed_ns, strict=True))

    def _fail(self, failed: int) -> None:
        message = (ctypes.c_char * 1024).in_dll(self._library, "layoutlab_error").value.decode(errors="replace")
        raise DeviceError(f"{self._names[failed - 1]} failed: {message.strip() or 'it does not say why'}")

    def _call(self, name: str, tensors: Sequence[np.ndarray]) -> _Call:
        try:
            function = ctypes.cast(getattr(self._library, name), ctypes.c_void_p)
        except AttributeError:
            raise DeviceError(f"the library has no function {name}: build the variant again") from None
        described = [_describe(tensor) for tensor in tensors]
        arguments = (ctypes.c_void_p * len(tensors))(*(ctypes.addressof(tensor) for tensor in described))
        codes = (ctypes.c_int32 * len(tensors))(*[_TENSOR] * len(tensors))
        self._kept += [tensors, described, arguments, codes]
        return _Call(function, ctypes.addressof(arguments), ctypes.addressof(codes), len(tensors))


def _describe(tensor: np.ndarray) -> _DLTensor:
    shape = (ctypes.c_int64 * max(tensor.ndim, 1))(*tensor.shape)
    code, bits, lanes = dl_type(tensor.dtype.name)
    return _DLTensor(tensor.ctypes.data, _CPU, 0, tensor.ndim, code, bits, lanes, shape, None, 0)


def open_library(path: str) -> ctypes.CDLL:
    """A library with the runtime of `runtime.c`. Raises DeviceError when it cannot be loaded here."""
    try:
        # Without a folder, a library would be looked for where the system's are.
        library = ctypes.CDLL(os.path.abspath(path))
    except OSError as error:
        raise DeviceError(f"the library cannot be loaded: {error}") from None
    if not hasattr(library, "layoutlab_run"):
        raise DeviceError(f"{path} was not linked by layoutlab: build the variant again")
    return library


class RelayRunner(runners._Base):
    """See `device.runners.Runner`."""

    def __init__(self, path: str, threads: int) -> None:
        """Raises DeviceError for more than one thread, and for what is no such library."""
        if threads != 1:
            raise DeviceError(
                f"what a Relay-era TVM built runs here with one thread, not {threads}: say threads: 1 in the spec"
            )
        library = open_library(path)
        described = json.loads(bytes(_held(library, "layoutlab_graph")))
        graph = read_graph(described["graph"])
        memory = Memory(graph.storage_bytes())
        _fill(graph, memory, read_params(_held(library, "layoutlab_params")))
        self._inputs = [(name, memory.view(graph.tensors[graph.inputs[name]])) for name in described["inputs"]]
        self._outputs = [memory.view(graph.tensors[number]) for number in graph.outputs]
        self._calls = Calls(library, [(call.function, _tensors(graph, memory, call)) for call in graph.calls])
        self.runtime = f"TVM {described['tvm']}, {threads} thread"

    def set_inputs(self, inputs: Sequence[np.ndarray]) -> None:
        """Copy the inputs into the graph's tensors. Raises DeviceError when they are no inputs of it."""
        for (name, tensor), value in zip(self._inputs, inputs, strict=True):
            if (value.shape, value.dtype) != (tensor.shape, tensor.dtype):
                raise DeviceError(
                    f"input {name} is {tensor.shape} of {tensor.dtype}, and was given {value.shape} of {value.dtype}"
                )
            tensor[...] = value

    def invoke(self) -> None:
        """One inference."""
        self._calls.run()

    def invoke_timed(self) -> list[tuple[str, int]]:
        """One inference; the name of each call and its nanoseconds, in their order."""
        return self._calls.run_timed()

    def outputs(self) -> list[np.ndarray]:
        """Copies of the outputs."""
        return [tensor.copy() for tensor in self._outputs]


def register() -> None:
    """Let `device.runners.open_runner` open libraries of this kind.

    From here, so that a process which runs none imports none of this: what the simulated core's Python imports moves
    the figures of everything that it counts.
    """
    runners._KINDS[KIND] = RelayRunner  # type: ignore[assignment]


def _held(library: ctypes.CDLL, name: str) -> memoryview:
    """A file that the library holds."""
    start, end = (ctypes.addressof(ctypes.c_char.in_dll(library, each)) for each in (name, f"{name}_end"))
    return memoryview((ctypes.c_char * (end - start)).from_address(start)).cast("B")


def _fill(graph: Graph, memory: Memory, params: Mapping[str, np.ndarray]) -> None:
    for name, value in params.items():
        # Weights that the optimised graph does not need any more may still be in the file.
        if name in graph.inputs:
            memory.view(graph.tensors[graph.inputs[name]])[...] = value


def _tensors(graph: Graph, memory: Memory, call: Call) -> list[np.ndarray]:
    views = [memory.view(graph.tensors[number]) for number in call.tensors]
    return [view.reshape(-1) for view in views] if call.flat else views
