"""A variant that computes something else is in no ranking; `engine/test_planted_errors.py` has the kinds of errors."""

from __future__ import annotations

import json
import os

from .runs import TUNED, UNTUNED, events, layoutlab, rows, write

# What the workers run first: the library of one variant is built from other weights than the model has.
PLANT = """\
import numpy as np
from layoutlab import jobs

compile_variant = jobs.VERBS["compile_variant"]

def with_other_weights(data):
    import tflite
    data = bytearray(data)
    model = tflite.Model.GetRootAs(data)
    buffers = [model.Buffers(index) for index in range(model.BuffersLength())]
    largest = max((buffer.DataAsNumpy() for buffer in buffers if buffer.DataLength()), key=len)
    largest.view(np.float32)[:] *= 0.9
    return bytes(data)

def planted(report, job):
    if "/broken-" in job["folder"]:
        from layoutlab.engine.relax import compile as relax_compile
        import_model = relax_compile.import_model
        relax_compile.import_model = lambda data: import_model(with_other_weights(data))
    return compile_variant(report, job)

jobs.VERBS["compile_variant"] = planted
"""
BROKEN = "{name: broken, convert_layout: NCHW, alter_op_layout: keep, tune: false}"


def test_wrong_numbers_are_in_no_ranking(finished, tmp_path):
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "sitecustomize.py").write_text(PLANT)
    write(finished, [BROKEN, TUNED, UNTUNED])
    path = f"{tmp_path / 'planted'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = layoutlab(finished, "run", "x.yaml", environment={"PYTHONPATH": path})
    assert done.returncode == 4
    row = rows(finished)["broken"]
    assert (row["verdict"], row["median_ms"], row["outputs_ok"]) == ("wrong outputs", "", "False")
    assert "values differ by more than" in row["failure"]
    # It was never timed.
    assert "broken" not in {event["row"] for event in events(finished, "samples")}

    again = layoutlab(finished, "report", "x.yaml", "--json")
    assert again.returncode == 4
    table = json.loads(again.stdout)
    assert "broken" not in table["samples_ms"]
    assert "broken" not in json.dumps(table["pairs"])
    for verb in ("winners", "compare"):
        ranked = layoutlab(finished, verb, "x.yaml")
        assert "broken" not in "".join(line for line in ranked.stdout.splitlines(True) if "wrong" not in line), verb
    page = (finished / "results" / "x" / "report.html").read_text(encoding="utf-8")
    assert "broken gives wrong outputs." in page
