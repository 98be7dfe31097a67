"""Two things that run a model on this machine behind one interface: a built variant, and TFLite."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from layoutlab.errors import DeviceError


class Runner(Protocol):
    """A model ready to run. `runtime` says in a few words what runs it."""

    runtime: str

    def set_inputs(self, inputs: Sequence[np.ndarray]) -> None:
        """Give the inputs, in the model's order, for the invocations that follow."""

    def invoke(self) -> None:
        """One inference."""

    def outputs(self) -> list[np.ndarray]:
        """The outputs of the last inference, in the model's order."""

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """set_inputs, invoke, outputs."""


class _Base:
    """What both runners do alike."""

    def run(self: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """set_inputs, invoke, outputs."""
        self.set_inputs(inputs)
        self.invoke()
        outputs: list[np.ndarray] = self.outputs()
        return outputs


class ArtifactRunner(_Base):
    """A shared library built by the relax engine, in TVM's virtual machine."""

    def __init__(self, path: str, threads: int) -> None:
        # Read by TVM's thread pool when it starts.
        os.environ["TVM_NUM_THREADS"] = str(threads)
        import tvm

        # The machine by its own module: TVM's runtime alone, all that a device has, comes without tvm.relax.
        from tvm.runtime.vm import VirtualMachine

        self._tvm = tvm
        self._vm = VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())
        self.runtime = f"TVM {tvm.__version__}, {threads} thread{'s' if threads > 1 else ''}"

    def set_inputs(self, inputs: Sequence[np.ndarray]) -> None:
        """Copy the inputs into the virtual machine."""
        self._vm.set_input("main", *(self._tvm.runtime.tensor(value) for value in inputs))

    def invoke(self) -> None:
        """Run `main` on the inputs given before."""
        self._vm.invoke_stateful("main")

    def set_instrument(self, instrument: Callable[..., None] | None) -> None:
        """Call this around each call of an inference, see TVM's `VirtualMachine.set_instrument`; None: no more."""
        self._vm.set_instrument(instrument)

    def outputs(self) -> list[np.ndarray]:
        """Copies of the outputs."""
        result = self._vm.get_outputs("main")
        tensors = [result] if hasattr(result, "numpy") else list(result)
        return [tensor.numpy() for tensor in tensors]


class TFLiteRunner(_Base):
    """LiteRT's interpreter with its default kernels, which means XNNPACK where that takes the op."""

    def __init__(self, path: str, threads: int) -> None:
        from importlib.metadata import version

        try:
            from ai_edge_litert.interpreter import Interpreter
        except ModuleNotFoundError as error:
            raise DeviceError(
                f"TFLite cannot run here, for LiteRT is not installed ({error}). Install it: pip install ai-edge-litert"
            ) from error

        self._interpreter = Interpreter(model_path=path, num_threads=threads)
        self._interpreter.allocate_tensors()
        self._inputs = [detail["index"] for detail in self._interpreter.get_input_details()]
        self._outputs = [detail["index"] for detail in self._interpreter.get_output_details()]
        self.runtime = (
            f"LiteRT {version('ai-edge-litert')}, {threads} thread{'s' if threads > 1 else ''}, "
            f"XNNPACK {'on' if self._is_delegated() else 'off'}"
        )

    def _is_delegated(self) -> bool:
        # A delegate replaces the ops it takes by one DELEGATE op at the end of the list; the default
        # interpreter has no other delegate than XNNPACK.
        return any(op["op_name"] == "DELEGATE" for op in self._interpreter._get_ops_details())

    def set_inputs(self, inputs: Sequence[np.ndarray]) -> None:
        """Copy the inputs into the interpreter's tensors."""
        for index, value in zip(self._inputs, inputs, strict=True):
            self._interpreter.set_tensor(index, value)

    def invoke(self) -> None:
        """One inference."""
        self._interpreter.invoke()

    def outputs(self) -> list[np.ndarray]:
        """Copies of the outputs."""
        return [self._interpreter.get_tensor(index) for index in self._outputs]


_KINDS: dict[str, type[ArtifactRunner] | type[TFLiteRunner]] = {
    "artifact": ArtifactRunner,
    "tflite": TFLiteRunner,
}


def open_runner(description: dict[str, Any]) -> Runner:
    """Open `{"kind": "artifact" | "tflite", "path": ..., "threads": ...}`."""
    return _KINDS[description["kind"]](description["path"], description["threads"])
