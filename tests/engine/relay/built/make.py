"""Makes the files of this folder again, in an interpreter that has a TVM with Relay: PYTHON make.py

They were made by TVM 0.16 (the fork's wheel hhb-tvm 3.2.3).
"""

from pathlib import Path

import tflite
import tvm
from tvm import relay, te
from tvm.relay.op import get, register_alter_op_layout

HERE = Path(__file__).resolve().parent
MODEL = HERE.parents[3] / "experiments" / "models" / "tiny" / "tiny_conv.tflite"
TARGETS = {
    "x86_64": "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64",
    "aarch64": "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu -mcpu=kryo -mattr=+neon",
}


def build_model(machine):
    """tiny_conv in its own layout, untuned."""
    model = tflite.Model.GetRootAsModel(MODEL.read_bytes(), 0)
    mod, params = relay.frontend.from_tflite(model)
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(mod, target=TARGETS[machine], params=params)
    (HERE / "graph.json").write_text(built.get_graph_json())
    (HERE / "params.bin").write_bytes(relay.save_param_dict(built.get_params()))
    built.get_lib().save(str(HERE / f"tiny_conv.{machine}.o"))


def build_matmul():
    """A candidate as AutoTVM builds it: one function, its loops vectorised and parallel."""
    a, b = te.placeholder((64, 256), name="a"), te.placeholder((256, 64), name="b")
    k = te.reduce_axis((0, 256))
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))
    schedule = te.create_schedule(c.op)
    i, j = schedule[c].op.axis
    outer, inner = schedule[c].split(j, 4)
    schedule[c].reorder(i, outer, k, inner)
    schedule[c].vectorize(inner)
    schedule[c].parallel(i)
    function = tvm.build(schedule, [a, b, c], TARGETS["aarch64"], name="default_function")
    function.save(str(HERE / "matmul.aarch64.o"))


if __name__ == "__main__":
    get("nn.conv2d").reset_attr("FTVMAlterOpLayout")
    register_alter_op_layout("nn.conv2d", lambda *_: None)
    for name in TARGETS:
        build_model(name)
    build_matmul()
