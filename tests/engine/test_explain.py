"""What a function was fused of, each part alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutlab.engine.base import CompileJob
from layoutlab.engine.explanation import ExplainRequest
from layoutlab.engine.relax.explain import explain
from layoutlab.errors import StageError

from ..conftest import TINY
from .running import TARGET, tuning_options


def silent(event: str, **fields: object) -> None:
    pass


def untuned(folder: Path) -> CompileJob:
    """tiny_resnet in NCHW: its input is padded and transposed in one function."""
    return CompileJob(
        model_path=str(TINY / "tiny_resnet.tflite"),
        target=TARGET,
        folder=str(folder),
        convert_layout="NCHW",
        hook=None,
        tune=False,
        tuning=tuning_options(1),
    )


def test_a_transform_that_is_fused_into_a_function_has_a_time_of_its_own(tmp_path):
    request = ExplainRequest(functions=("fused_pad_transpose1",), promised_us={})
    (found,) = explain(untuned(tmp_path), request, silent)
    assert [(part.function, part.transforms) for part in found.parts] == [
        ("pad2", ()),
        ("transpose1", ("permute_dims NHWC->NCHW",)),
    ]
    times = [found.warm, found.cold, *(part.timed for part in found.parts)]
    assert all(timed is not None and timed.failed is None and timed.us > 0 for timed in times)
    assert found.again is None and found.like_record is None
    assert list(tmp_path.iterdir()) == []


def test_a_function_that_the_variant_does_not_have(tmp_path):
    with pytest.raises(StageError) as caught:
        explain(untuned(tmp_path), ExplainRequest(functions=("fused_pad",), promised_us={}), silent)
    assert str(caught.value) == (
        "explain: the library has a function fused_pad, and its spec and records make none now: run it again"
    )
