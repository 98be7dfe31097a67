"""What a user's hook may do to a run: cost its own variant, and nothing else. `test_experiment.py` has more of them."""

from __future__ import annotations

import re

from .runs import layoutlab, write

HOOKS = """\
import os
import subprocess
import sys
import time
from layoutlab.hooks import ConvLayout

def hangs(conv):
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass

def grows(conv):
    held = []
    while True:
        held.append(b"x" * 2**25)
        time.sleep(0.02)

def unknown(conv):
    return ConvLayout(data="NCWHXYZ", kernel="", out="NCHW")

def prints(conv):
    print('{"event": "result", "value": {}}')
    sys.stdout.flush()
    sys.__stdout__.write('{"event": "error", "stage": "x", "cause": "y", "kind": "StageError"}' + chr(10))
    os.write(1, b'not JSON at all' + bytes([10]))
    subprocess.run(["echo", "not JSON from another program"])
    return None
"""
# What a hook's worker runs first: nobody waits for a minute here.
IMPATIENT = "import layoutlab.hook_limit\nlayoutlab.hook_limit.ANSWER_S = 3\n"


def said_of(tmp_path, variants, modules):
    """What is said of each of the variants, without its log."""
    write(tmp_path, variants)
    (tmp_path / "my_hooks.py").write_text(HOOKS)
    allowed = [word for module in modules for word in ("--allow-hooks", module)]
    shown = layoutlab(tmp_path, "layouts", "x.yaml", *allowed, environment={"LAYOUTLAB_MEMORY_GIB": "1"})
    assert shown.returncode == 1
    return dict(re.findall(r"^(\w+): (.*?)(?: \(log: .*\))?$", shown.stdout, re.M))


def variant(name, hook):
    return f"{{name: {name}, alter_op_layout: {hook}, tune: false}}"


def test_a_hook_that_hangs_costs_its_own_variant(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(IMPATIENT)
    (tmp_path / "slow_hooks.py").write_text("import time\ntime.sleep(600)\n")
    variants = [variant("answering", "my_hooks:hangs"), variant("imported", "slow_hooks:choose")]
    assert said_of(tmp_path, variants, ["my_hooks", "slow_hooks"]) == {
        "answering": "fails at layout: the hook gave no answer at conv 0 within 3 s; the process was ended",
        "imported": "fails at layout: the hook's module was not imported within 3 s; the process was ended",
    }


def test_other_hooks_cost_their_own_variant(tmp_path):
    variants = [variant(name, f"my_hooks:{name}") for name in ("grows", "unknown", "prints")]
    assert said_of(tmp_path, variants, ["my_hooks"]) == {
        "grows": "fails at layout: it took more than 1.0 GiB of memory, its limit here; the process was ended",
        "unknown": "fails at layout: conv 0 cannot run as data NCWHXYZ, kernel , out NCHW: expected NHWC, NCHW, or "
        "data NCHW<a>c with kernel OIHW<b>o and out NCHW<b>c",
        "prints": "2 NHWC -> 2 NHWC",
    }


def test_code_beside_a_spec_without_hooks_is_not_run(tmp_path):
    """Python itself runs modules of certain names where it looks for modules."""
    write(tmp_path, ["{name: nchw, convert_layout: NCHW, tune: false}"])
    for name in ("sitecustomize", "usercustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the spec ran its own code')\n")
    shown = layoutlab(tmp_path, "layouts", "x.yaml")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("nchw: 2 NHWC -> 2 NCHW\n")
