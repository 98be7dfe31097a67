"""Which of TVM's tensor intrinsics a process parses: none to compile, those of its target's CPU to tune."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import layoutlab.engine.relax.compile
from layoutlab.engine.relax.tune.space import make_context
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from tvm.script import tirx as T

@T.prim_func(s_tir=True)
def add_one(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.sblock("add"):
            v = T.axis.spatial(64, i)
            b[v] = a[v] + T.float32(1)

NAMES = ("dot_16x4_vnni", "dot_4x4_i8i8s32_neon", "wmma_fill_16x16x16_f32")

def registered():
    return [name for name in NAMES if tvm.s_tir.TensorIntrin.get(name, allow_missing=True) is not None]

print(registered())
mod = tvm.IRModule({"main": add_one.with_attr("global_symbol", "main")})
for target in (
    {"kind": "llvm", "mcpu": "cascadelake", "mtriple": "x86_64-linux-gnu", "num-cores": 1},
    {"kind": "llvm", "mcpu": "kryo", "mtriple": "aarch64-linux-gnu", "mattr": ["+neon"], "num-cores": 1},
):
    context = make_context(
        mod, tvm.target.Target(target), meta_schedule.search_strategy.ReplayTrace(), rand_state=1, num_threads=1
    )
    print(len(context.generate_design_space()), registered())
"""


def test_a_process_parses_the_intrinsics_of_its_targets_cpu_when_it_makes_a_design_space(tmp_path):
    # From a file: TVMScript reads the source of what it parses.
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == [
        "[]",
        "1 ['dot_16x4_vnni']",
        "1 ['dot_16x4_vnni', 'dot_4x4_i8i8s32_neon']",
    ], done.stderr
