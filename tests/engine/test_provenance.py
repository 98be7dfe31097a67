"""Every operator of a model is in exactly one executed function, or it is said why not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from layoutlab.engine.provenance import AT_COMPILE_TIME, UNKNOWN, Provenance
from layoutlab.engine.relax.build import apply_records, build_library
from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.layout.convert import apply_plan
from layoutlab.engine.relax.layout.plan import find_convs, plan, static_shape
from layoutlab.engine.relax.lower import lower
from layoutlab.engine.relax.provenance.trace import task_names, trace
from layoutlab.engine.relax.tune.tuner import extract_tasks
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.model.work import operators

from ..conftest import ROOT, TINY
from .running import LAYOUTS, TARGET, seeded_inputs
from .test_networks import network

# tiny_dynamic has to be bound first.
MODELS = sorted(path.stem for path in TINY.glob("*.tflite") if path.stem != "tiny_dynamic")


@dataclass(frozen=True)
class Traced:
    module: tvm.IRModule
    target: tvm.target.Target
    provenance: Provenance


def traced(path: Path, imported: tvm.IRModule, layout: str) -> Traced:
    """An untuned variant, just before it is built."""
    target = tvm.target.Target(TARGET)
    lowered = lower(apply_plan(imported, plan(imported, *LAYOUTS[layout]))[0], target, pack_weights=True)
    tasks = extract_tasks(lowered, target)
    nothing = meta_schedule.database.MemoryDatabase()
    built, _ = apply_records(lowered, target, nothing, pack_weights=True, expected=())
    return Traced(built, target, trace(built, path.read_bytes(), lowered, tasks))


def imported_model(path: Path) -> tvm.IRModule:
    return canonicalise(import_model(path.read_bytes()))


def require_complete(provenance: Provenance) -> None:
    computed = [op for function in provenance.functions for op in function.ops]
    assert sorted([*computed, *provenance.removed]) == list(range(len(provenance.operators)))
    assert UNKNOWN not in provenance.removed.values()
    assert all(f.ops or f.parts or f.transforms for f in provenance.functions)
    assert None not in [function.task for function in provenance.functions]
    assert sorted(provenance.homes) == sorted(computed)


@pytest.mark.parametrize("model", MODELS)
def test_every_operator_is_in_exactly_one_place(model):
    path = TINY / f"{model}.tflite"
    imported = imported_model(path)
    for layout in LAYOUTS:
        require_complete(traced(path, imported, layout).provenance)


@pytest.mark.parametrize("model", MODELS)
def test_convolutions_are_numbered_as_in_the_file(model):
    path = TINY / f"{model}.tflite"
    found = [static_shape(call) for _, call in find_convs(imported_model(path))]
    assert found == [op.shape for op in operators(path.read_bytes()) if op.type in ("CONV_2D", "DEPTHWISE_CONV_2D")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        lambda: ROOT / "experiments" / "models" / "mobilenet_v3_large_minimalistic_224.tflite",
        lambda: network("inception_v3"),
    ],
    ids=["mobilenet_v3_large_minimalistic", "inception_v3"],
)
def test_every_operator_of_a_real_network(path):
    imported = imported_model(path())
    for layout in LAYOUTS:
        require_complete(traced(path(), imported, layout).provenance)


def lines(provenance: Provenance) -> str:
    def line(function):
        ops = [f"{op} {provenance.operators[op].type}" for op in function.ops]
        parts = [f"({op} {provenance.operators[op].type})" for op in function.parts]
        shape = "x".join(map(str, function.shape))
        computes = ", ".join([*ops, *parts, *function.transforms])
        return f"{function.node}: {computes} -> {shape} {function.layout or '-'}, {function.flop} FLOP"

    return "\n".join([*map(line, provenance.functions), *(f"{op}: {why}" for op, why in provenance.removed.items())])


PACKED = """\
0: 0 CONV_2D -> 1x4x16x16x4 NCHW4c, 225280 FLOP
1: 1 CONV_2D -> 1x8x16x16x4 NCHW4c, 270336 FLOP
2: 2 DEPTHWISE_CONV_2D -> 1x8x16x16x4 NCHW4c, 155648 FLOP
3: 3 CONV_2D, 4 ADD -> 1x4x16x16x4 NCHW4c, 270336 FLOP
4: 5 CONV_2D -> 1x12x16x16x4 NCHW4c, 405504 FLOP
5: 6 DEPTHWISE_CONV_2D -> 1x12x8x8x4 NCHW4c, 58368 FLOP
6: 7 CONV_2D -> 1x6x8x8x4 NCHW4c, 148992 FLOP
7: 8 CONV_2D -> 1x12x8x8x4 NCHW4c, 150528 FLOP
8: 9 DEPTHWISE_CONV_2D -> 1x12x8x8x4 NCHW4c, 58368 FLOP
9: 10 CONV_2D, 11 ADD -> 1x6x8x8x4 NCHW4c, 150528 FLOP
10: 12 CONV_2D -> 1x16x8x8x4 NCHW4c, 200704 FLOP
11: 13 MEAN -> 1x16x1x1x4 NCHW4c, 4096 FLOP
12: 14 CONV_2D -> 1x4x1x1x4 NCHW4c, 2064 FLOP
13: 15 RESHAPE, reshape NCHW4c->NHWC -> 1x16 -, 0 FLOP
14: 16 SOFTMAX -> 1x16 -, 80 FLOP"""


def test_equal_functions_have_one_task():
    target = tvm.target.Target(TARGET)
    lowered = lower(imported_model(TINY / "tiny_dense.tflite"), target, pack_weights=True)
    tasks = extract_tasks(lowered, target)
    names = {str(task.task_name) for task in tasks}
    assert task_names(lowered, tasks) == {name: name for name in names}
    both = tvm.IRModule({**lowered.functions, tvm.ir.GlobalVar("again"): lowered["softmax1"]})
    assert task_names(both, tasks) == {**{name: name for name in names}, "again": "softmax1"}


@pytest.mark.slow
def test_operators_that_need_no_function(face_models):
    """Weights stored as float16, and two poolings of the same tensor."""
    path = face_models / "face_detection_front.tflite"
    provenance = traced(path, imported_model(path), "nhwc").provenance
    require_complete(provenance)
    assert {(provenance.operators[op].type, why) for op, why in provenance.removed.items()} == {
        ("DEQUANTIZE", AT_COMPILE_TIME)
    }
    path = face_models / "face_landmark.tflite"
    provenance = traced(path, imported_model(path), "nhwc").provenance
    require_complete(provenance)
    (twin,) = provenance.removed
    other = int(provenance.removed[twin].split()[4].rstrip(","))
    assert provenance.removed[twin] == f"the same as operator {other}, and computed once for both"
    assert provenance.operators[twin].type == provenance.operators[other].type == "MAX_POOL_2D"
    assert provenance.operators[twin].shape == provenance.operators[other].shape


def outputs_of_functions(found: Traced, path: Path, folder: Path) -> list[np.ndarray]:
    """What each executed function wrote, in the order of execution."""
    library = str(folder / "model.so")
    build_library(found.module, found.target, library)
    machine = tvm.relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())
    names, outputs = [], []

    def watch(function, name, before, result, *arguments):
        if not before and not name.startswith("vm.builtin."):
            names.append(name)
            outputs.append(arguments[-1].numpy())

    machine.set_instrument(watch)
    machine["main"](*(tvm.runtime.tensor(value) for value in seeded_inputs(path, 1)))
    assert names == [function.function for function in found.provenance.functions]
    return outputs


def tflite_tensors(path: Path) -> dict[str, np.ndarray]:
    """Every tensor of an inference with TFLite's own kernels, by name."""
    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(str(path), experimental_preserve_all_tensors=True, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), seeded_inputs(path, 1), strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    details = [detail for detail in interpreter.get_tensor_details() if detail["name"]]
    return {detail["name"]: interpreter.get_tensor(detail["index"]) for detail in details}


def test_what_each_function_of_a_network_computes():
    path = TINY / "tiny_mobilenet.tflite"
    assert lines(traced(path, imported_model(path), "nchw4c").provenance) == PACKED


def test_a_function_outputs_what_its_last_operator_computes(tmp_path):
    """In a network whose branches share functions, with transforms between them."""
    path = TINY / "tiny_inception.tflite"
    found = traced(path, imported_model(path), "nchw4c")
    assert len({function.function for function in found.provenance.functions}) < len(found.provenance.functions)
    tensors = tflite_tensors(path)
    checked = 0
    for function, output in zip(found.provenance.functions, outputs_of_functions(found, path, tmp_path), strict=True):
        if not function.ops:
            continue
        wanted = tensors[found.provenance.operators[max(function.ops)].output]
        # The same values, wherever the layout puts them.
        np.testing.assert_allclose(np.sort(output, None), np.sort(wanted, None), rtol=1e-3, atol=1e-4)
        checked += 1
    assert checked == len({function.node for function in found.provenance.functions if function.ops}) > 10
