"""Variants without fusion, and without some of TVM's passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from layoutlab.engine.base import USUAL_PASSES, PassOptions
from layoutlab.engine.relax.build import apply_records, build_library
from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.layout.convert import apply_plan
from layoutlab.engine.relax.layout.plan import plan
from layoutlab.engine.relax.lower import lower
from layoutlab.engine.relax.passes import pass_context, require_known
from layoutlab.engine.relax.provenance.trace import trace
from layoutlab.engine.relax.tune.tuner import extract_tasks
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.errors import StageError

from ..conftest import TINY
from .running import LAYOUTS, TARGET, run_tflite, seeded_inputs
from .test_provenance import MODELS, lines, require_complete

NO_FUSION = """\
0: permute_dims NHWC->NCHW -> 1x8x16x16 NCHW, 0 FLOP
1: (0 CONV_2D) -> 1x16x16x16 NCHW, 0 FLOP
2: (0 CONV_2D) -> 1x16x16x16 NCHW, 0 FLOP
3: 0 CONV_2D -> 1x16x16x16 NCHW, 593920 FLOP
4: (1 CONV_2D) -> 1x32x16x16 NCHW, 0 FLOP
5: (1 CONV_2D) -> 1x32x16x16 NCHW, 0 FLOP
6: 1 CONV_2D -> 1x32x16x16 NCHW, 270336 FLOP
7: 2 MEAN -> 1x32 -, 8192 FLOP
8: (3 FULLY_CONNECTED) -> 1x16 -, 0 FLOP
9: 3 FULLY_CONNECTED -> 1x16 -, 1040 FLOP
10: 4 SOFTMAX -> 1x16 -, 80 FLOP"""


def compiled(path: Path, layout: str, fuse: bool, passes: PassOptions = USUAL_PASSES):
    """An untuned variant, just before it is built, and its provenance."""
    target = tvm.target.Target(TARGET)
    imported = canonicalise(import_model(path.read_bytes()))
    with pass_context(passes):
        lowered = lower(apply_plan(imported, plan(imported, *LAYOUTS[layout]))[0], target, True, fuse)
        tasks = extract_tasks(lowered, target)
        built, _ = apply_records(lowered, target, meta_schedule.database.MemoryDatabase(), True, ())
        return built, trace(built, path.read_bytes(), lowered, tasks)


def outputs(mod: tvm.IRModule, path: Path, folder: Path) -> list[np.ndarray]:
    build_library(mod, tvm.target.Target(TARGET), str(folder / "model.so"))
    machine = tvm.relax.VirtualMachine(tvm.runtime.load_module(str(folder / "model.so")), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(value) for value in seeded_inputs(path, 1)))
    return [tensor.numpy() for tensor in ([result] if hasattr(result, "numpy") else result)]


@pytest.mark.parametrize("model", MODELS)
def test_without_fusion_every_operator_is_in_exactly_one_place(model):
    require_complete(compiled(TINY / f"{model}.tflite", "nchw4c", fuse=False)[1])


def test_without_fusion_a_convolution_its_bias_and_its_activation_are_three_functions():
    path = TINY / "tiny_conv.tflite"
    found = compiled(path, "nchw", fuse=False)[1]
    assert lines(found) == NO_FUSION
    assert len(compiled(path, "nchw", fuse=True)[1].functions) == 6


@pytest.mark.parametrize("model", ["tiny_conv", "tiny_resnet"])
def test_without_fusion_a_model_computes_what_tflite_computes(model, tmp_path):
    path = TINY / f"{model}.tflite"
    (found,) = outputs(compiled(path, "nchw", fuse=False)[0], path, tmp_path)
    np.testing.assert_allclose(found, run_tflite(path, seeded_inputs(path, 1))[0], rtol=1e-3, atol=1e-4)


def test_a_pass_that_is_left_out_did_not_run(tmp_path):
    """Without FuseOps there is nothing to fuse; the result is the same, at a level of 0 as well."""
    path = TINY / "tiny_conv.tflite"
    built, found = compiled(path, "nchw", fuse=True, passes=PassOptions(disabled=("FuseOps",), opt_level=0))
    assert lines(found) == NO_FUSION
    (output,) = outputs(built, path, tmp_path)
    np.testing.assert_allclose(output, run_tflite(path, seeded_inputs(path, 1))[0], rtol=1e-3, atol=1e-4)


def test_passes_that_tvm_does_not_have():
    require_known(PassOptions(disabled=("FoldConstant", "tirx.CommonSubexprElim", "s_tir.LoopPartition")))
    with pytest.raises(StageError) as caught:
        require_known(PassOptions(disabled=("FoldConstants", "Simplify", "tirx.VectorizeLoops")))
    assert str(caught.value) == (
        f'lower: passes.disabled: TVM {tvm.__version__} has no pass "FoldConstants": did you mean "FoldConstant"?; '
        'no pass "Simplify": did you mean "tirx.StmtSimplify"?; '
        'no pass "tirx.VectorizeLoops": did you mean "tirx.VectorizeLoop"?'
    )
