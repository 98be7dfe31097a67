# ruff: noqa: E501 - tables are shown as they are
"""`layoutlab layouts`: what variants do to the layouts, as text that can be argued with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import TINY

SPEC = """\
name: x
model: {file: model.tflite}
variants:
  - {name: keep, alter_op_layout: keep}
  - {name: padded, alter_op_layout: {hook: nchwc, block: 4, channels: pad}}
  - name: table
    alter_op_layout:
      rules:
        - {match: {depthwise: true}, layout: keep}
        - {match: {kernel: 1x1}, layout: NHWC}
        - {match: {index: "0"}, layout: NCHW}
  - {name: nothing, convert_layout: NCHW, alter_op_layout: {hook: nchwc, block: 4}}
"""

PADDED = """\
padded: 4 NHWC -> 1 NCHW3c->NCHW4c, 3 NCHW4c

conv    kernel         stride    groups    channels    was    hook            is              why
------  -------------  --------  --------  ----------  -----  --------------  --------------  ------------------------------
0       3x3            1x1       1         3 -> 6      NHWC   NCHW3c->NCHW4c  NCHW3c->NCHW4c  the hook, with padded channels
1       3x3            1x1       1         6 -> 10     NHWC   NCHW4c          NCHW4c          the hook, with padded channels
2       3x3 depthwise  2x2       10        10 -> 10    NHWC   NCHW4c          NCHW4c          the hook, with padded channels
3       1x1            1x1       1         10 -> 6     NHWC   NCHW4c          NCHW4c          the hook, with padded channels

2 layout transforms, 64 B moved:
  [1, 17, 23, 3] -> [1, 1, 17, 23, 3], free: after input, for nn.conv2d
  [1, 2, 4] -> [1, 8], 64 B: after mean, for matmul

"""

TABLE = """\
table: 4 NHWC -> 1 NCHW, 3 NHWC

conv    kernel         stride    groups    channels    was    hook    is    why
------  -------------  --------  --------  ----------  -----  ------  ----  -------------------------------------------------
0       3x3            1x1       1         3 -> 6      NHWC   NCHW    NCHW  the hook
1       3x3            1x1       1         6 -> 10     NHWC   -       NHWC  kept by the hook: no rule matches it; as imported
2       3x3 depthwise  2x2       10        10 -> 10    NHWC   -       NHWC  kept by the hook: rule 1 keeps it; as imported
3       1x1            1x1       1         10 -> 6     NHWC   NHWC    NHWC  the hook

2 layout transforms, 25 kB moved:
  [1, 17, 23, 3] -> [1, 3, 17, 23], 9 kB: after input, for nn.conv2d
  [1, 6, 15, 21] -> [1, 15, 21, 6], 15 kB: after nn.relu, for nn.conv2d

"""

NOTHING = (
    "nothing: fails at layout: NCHW4c was asked for, but it changed nothing: all 4 convolutions stay NCHW (3 input and 6 "
    "output channels do not divide by 4, and so on). Leave it out to compare the model as it is, or ask for a layout "
    "their channels allow\n"
)


@pytest.fixture
def layouts(tmp_path: Path):
    (tmp_path / "x.yaml").write_text(SPEC)
    shutil.copy(TINY / "tiny_odd.tflite", tmp_path / "model.tflite")

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "layoutlab", "layouts", "x.yaml", *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    return run


def test_each_variant_is_told_conv_by_conv(layouts):
    done = layouts()
    assert done.returncode == 1
    parts = done.stdout.split("\n\n\n")
    assert "no layout transform" in parts[0]
    assert PADDED in done.stdout
    assert TABLE in done.stdout
    assert done.stdout.endswith(NOTHING + "\n")
    assert "Traceback" not in done.stderr


def test_one_variant_with_its_ir(layouts):
    done = layouts("--variant", "padded", "--ir")
    assert done.returncode == 0
    assert done.stdout.startswith(PADDED)
    before, after = done.stdout.split("\nafter:\n")
    assert before.count('data_layout="NHWC"') == 4
    assert after.count('kernel_layout="OIHW4o"') == 4
    assert "R.layout_transform" in after


def test_an_unknown_variant(layouts):
    done = layouts("--variant", "pad")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'error: x.yaml has no variant "pad": did you mean "padded"?\n'


def test_json(layouts):
    data = json.loads(layouts("--json").stdout)
    assert list(data) == ["keep", "padded", "table", "nothing"]
    assert data["keep"]["census_after"] == {"conv_layouts": {"NHWC": 4}, "transforms": []}
    assert [conv["after"] for conv in data["table"]["convs"]] == ["NCHW", "NHWC", "NHWC", "NHWC"]
    assert data["nothing"]["error"].startswith("layout: NCHW4c was asked for")


def test_a_users_hook_has_to_be_allowed(layouts, tmp_path):
    (tmp_path / "x.yaml").write_text(SPEC.replace("alter_op_layout: keep", "alter_op_layout: mine:hook"))
    (tmp_path / "mine.py").write_text("def hook(conv):\n    return None\n")
    refused = layouts()
    assert (refused.returncode, refused.stdout) == (2, "")
    assert 'hook "mine:hook" is code that the spec wants to run' in refused.stderr
    assert layouts("--variant", "keep", "--allow-hooks", "mine").returncode == 0


def test_winners_need_a_run(layouts, tmp_path):
    command = [sys.executable, "-m", "layoutlab", "winners", "x.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: results/runs/x holds 0 completely tuned variants: winners need two, so run the spec first\n"
    )
