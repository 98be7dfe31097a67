"""From a spec's variant to an engine's job, and to what tables flag."""

from __future__ import annotations

from pathlib import Path

from layoutlab.engine.base import PassOptions
from layoutlab.report.plan import plan_text
from layoutlab.spec.load import load_spec
from layoutlab.variants import compile_job, compiled_otherwise

SPEC = """\
name: x
model: {file: x.tflite}
device: host
variants:
  - {name: usual}
  - {name: unfused, tune: false, fuse: false}
  - {name: fewer, passes: {disabled: [FoldConstant, tirx.CommonSubexprElim], opt_level: 1}}
"""


def test_variants_that_are_compiled_otherwise(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(SPEC)
    loaded = load_spec(path)
    assert [compiled_otherwise(variant) for variant in loaded.spec.variants] == [
        [],
        ["fusion off"],
        ["without FoldConstant, tirx.CommonSubexprElim", "opt level 1"],
    ]
    jobs = [compile_job(loaded, variant, path, {}, tmp_path, ()) for variant in loaded.spec.variants]
    assert [job.fuse for job in jobs] == [True, False, True]
    assert [job.tuning.passes for job in jobs] == [
        PassOptions(),
        PassOptions(),
        PassOptions(disabled=("FoldConstant", "tirx.CommonSubexprElim"), opt_level=1),
    ]
    rows = [line.split("  ")[-1].strip() for line in plan_text(loaded, Path("results")).splitlines()[5:8]]
    assert rows == ["1000", "untuned, fusion off", "1000, without FoldConstant, tirx.CommonSubexprElim, opt level 1"]
