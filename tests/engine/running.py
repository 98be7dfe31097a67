"""Running a Relax module and a .tflite file on the same inputs, whatever the number of inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from layoutlab import hooks
from layoutlab.engine.base import TuningOptions
from layoutlab.engine.relax.build import apply_records, build_library
from layoutlab.engine.relax.lower import lower
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.measure.inputs import make_inputs
from layoutlab.model.describe import describe
from layoutlab.spec.models import TuningSpec

# Without the vector width of this machine: results do not depend on where the tests run.
TARGET = {"kind": "llvm", "num-cores": 1}

# The layouts in which every network has to compute what TFLite computes: convert_layout and hook.
LAYOUTS = {
    "nhwc": (None, hooks.keep),
    "nchw": ("NCHW", hooks.keep),
    "nchw4c": ("NCHW", hooks.Nchwc(4)),
    "nchw8c": ("NCHW", hooks.Nchwc(8)),
}


def seeded_inputs(path: Path, seed: int, value_range: tuple[float, float] = (-1.0, 1.0)) -> list[np.ndarray]:
    """One value for each input of the model, smooth images in `value_range` where they are images."""
    tensors = [{"shape": tensor.shape, "dtype": tensor.dtype} for tensor in describe(path.read_bytes()).inputs]
    return make_inputs(tensors, value_range, sets=1, seed=seed)[0]


class Built:
    """A module built untuned, its library in `folder`, and ready to run. `change` is done to it once it is lowered."""

    def __init__(
        self, mod: tvm.IRModule, folder: Path, change: Callable[[tvm.IRModule], tvm.IRModule] = lambda lowered: lowered
    ) -> None:
        target = tvm.target.Target(TARGET)
        lowered = change(lower(mod, target, pack_weights=True))
        built, _ = apply_records(
            lowered, target, meta_schedule.database.MemoryDatabase(), pack_weights=True, expected=()
        )
        library = str(folder / "model.so")
        build_library(built, target, library)
        self._vm = tvm.relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs, in the model's order, of one inference."""
        result = self._vm["main"](*(tvm.runtime.tensor(value) for value in inputs))
        # One output is a tensor, several are a tuple of tensors.
        return [tensor.numpy() for tensor in ([result] if hasattr(result, "numpy") else result)]


def run_tvm(mod: tvm.IRModule, inputs: Sequence[np.ndarray], folder: Path) -> list[np.ndarray]:
    """Build the module and run it once."""
    return Built(mod, folder).run(inputs)


def run_tflite(path: Path, inputs: Sequence[np.ndarray], xnnpack: bool = True) -> list[np.ndarray]:
    """TFLite's outputs; without `xnnpack`, those of its own kernels, which are slower and plainer."""
    resolver = OpResolverType.AUTO if xnnpack else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(str(path), num_threads=1, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def tuning_options(trials: int, **changes) -> TuningOptions:
    """Options of a small tuning: the defaults of a spec, but small batches, a small population, short measuring."""
    small = {"trials": trials, "batch": 4, "population": 8, "min_repeat_ms": 0}
    return TuningOptions(**TuningSpec(**(small | changes)).model_dump())
