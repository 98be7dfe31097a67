"""Running what a Relay-era TVM built, from the files of `built/`, without that TVM."""

from __future__ import annotations

import json
import platform
import shutil
import struct
import subprocess
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from layoutlab.device import on_device
from layoutlab.engine.relay.executor.function_times import time_functions
from layoutlab.engine.relay.executor.graph import read_graph, read_params
from layoutlab.engine.relay.executor.link import compile_runtime, link_artifact, link_objects
from layoutlab.engine.relay.executor.runner import KIND, Calls, RelayRunner, open_library, register
from layoutlab.errors import DeviceError, StageError
from layoutlab.measure.inputs import load_sets, make_inputs, save_sets

from ...conftest import TINY
from ...device.agents import running
from ..running import run_tflite, seeded_inputs

BUILT = Path(__file__).parent / "built"
MODEL = TINY / "tiny_conv.tflite"
INPUT = "serving_default_input:0"
CALLS = [
    "fused_nn_conv2d_add_nn_relu",
    "fused_nn_conv2d_add_nn_relu_1",
    "fused_mean",
    "fused_nn_contrib_dense_pack_add",
    "fused_nn_softmax",
]

this_machine = pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="built/ is for two machines")


def made_by_tvm(folder: Path, machine: str = platform.machine()) -> Path:
    """A folder with what the engine finds there."""
    shutil.copy(BUILT / f"tiny_conv.{machine}.o", folder / "lib.o")
    for name in ("graph.json", "params.bin"):
        shutil.copy(BUILT / name, folder)
    return folder


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = made_by_tvm(tmp_path_factory.mktemp("variant"))
    return link_artifact(folder, target={}, device_kind="host", inputs=[INPUT], tvm="0.16.0")


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    path = tmp_path / "inputs.npz"
    save_sets(path, make_inputs([{"shape": (1, 16, 16, 8), "dtype": "float32"}], (-1, 1), 2, 1))
    return path


@this_machine
def test_it_computes_what_tflite_computes(library):
    runner = RelayRunner(str(library), 1)
    assert runner.runtime == "TVM 0.16.0, 1 thread"
    for seed in (1, 2):
        values = seeded_inputs(MODEL, seed)
        for ours, theirs in zip(runner.run(values), run_tflite(MODEL, values), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)


@this_machine
def test_only_the_library_is_left_in_the_folder(library):
    assert sorted(path.name for path in library.parent.iterdir()) == ["graph.json", "lib.o", "model.so", "params.bin"]


@this_machine
def test_inputs_of_another_shape_or_type_are_refused(library):
    runner = RelayRunner(str(library), 1)
    message = rf"^input {INPUT} is \(1, 16, 16, 8\) of float32, and was given \(1, 8, 16, 16\) of float32$"
    with pytest.raises(DeviceError, match=message):
        runner.set_inputs([np.zeros((1, 8, 16, 16), "float32")])
    with pytest.raises(DeviceError, match=r"was given \(1, 16, 16, 8\) of float64$"):
        runner.set_inputs([np.zeros((1, 16, 16, 8))])


def test_more_than_one_thread_is_refused():
    message = "^what a Relay-era TVM built runs here with one thread, not 2: say threads: 1 in the spec$"
    with pytest.raises(DeviceError, match=message):
        RelayRunner("any.so", 2)


def test_an_input_that_the_graph_does_not_have_is_refused(tmp_path):
    with pytest.raises(StageError, match=f"^build: the graph has no input image; it has {INPUT}, p0, p1, "):
        link_artifact(made_by_tvm(tmp_path, "x86_64"), target={}, device_kind="host", inputs=["image"], tvm="0.16.0")


def test_a_target_for_another_machine_needs_its_triple(tmp_path):
    with pytest.raises(StageError, match=r"^build: a target for another machine needs its -mtriple, e\.g\. aarch64"):
        compile_runtime(tmp_path, target={}, device_kind="rpc", graph=False)


@pytest.mark.parametrize("triple", ["aarch64-linux-android", "aarch64-unknown-linux-gnu", "x86_64-linux-gnu"])
def test_libraries_are_linked_for_devices_over_rpc(tmp_path, triple):
    target = {"mtriple": triple}
    machine = triple.partition("-")[0]
    made = link_artifact(made_by_tvm(tmp_path, machine), target=target, device_kind="rpc", inputs=[INPUT], tvm="0.16.0")
    found = made.read_bytes()
    assert found[:4] == b"\x7fELF"
    assert struct.unpack("<H", found[18:20])[0] == {"aarch64": 183, "x86_64": 62}[machine]


@this_machine
def test_each_function_is_timed_in_its_order(library, inputs):
    runner = {"kind": KIND, "path": str(library), "threads": 1}
    found = time_functions(runner, str(inputs), inferences=10, budget_ms=1e4, warmup_ms=0, cores="all")
    assert found["functions"] == CALLS
    assert [len(times) for times in found["times_us"]] == [len(CALLS)] * 10
    assert len(found["end_to_end_ms"]) == len(found["instrumented_ms"]) == 10


@this_machine
def test_an_agent_runs_it_as_this_machine_does(library, inputs, tmp_path):
    from layoutlab.device.agent_session import AgentSession

    runner = {"kind": KIND, "path": "model.so", "threads": 1}
    with running() as port, closing(AgentSession("127.0.0.1", port)) as agent:
        agent.upload(library, "model.so")
        agent.upload(inputs, "inputs.npz")
        done = agent.do("compute_outputs", runner=runner, inputs="inputs.npz", outputs="outputs.npz")
        (tmp_path / "far.npz").write_bytes(agent.download("outputs.npz"))
        times = agent.do(
            "time_functions", runner=runner, inputs="inputs.npz", inferences=1, budget_ms=1e3, warmup_ms=0, cores="all"
        )
    assert done == {"runtime": "TVM 0.16.0, 1 thread"}
    assert len(times["functions"]) == len(CALLS)
    register()
    on_device.compute_outputs({**runner, "path": str(library)}, str(inputs), str(tmp_path / "near.npz"))
    for far, near in zip(load_sets(tmp_path / "far.npz"), load_sets(tmp_path / "near.npz"), strict=True):
        np.testing.assert_array_equal(far[0], near[0])


# What a compiled function may ask of the runtime, in C; the names and types are those of TVM's c_backend_api.h.
_ASKING = """
typedef struct { void *barrier; int tasks; } Group;
__attribute__((weak)) void *(*__TVMBackendAllocWorkspace)(int, int, unsigned long long, int, int);
__attribute__((weak)) int (*__TVMBackendFreeWorkspace)(int, int, void *);
__attribute__((weak)) int (*__TVMBackendParallelLaunch)(int (*)(int, Group *, void *), void *, int);
__attribute__((weak)) int (*__TVMBackendGetFuncFromEnv)(void *, const char *, void **);
__attribute__((weak)) void (*__TVMAPISetLastError)(const char *);

static float *first_of(void **arguments) { return **(float ***)arguments; }

int memory(void **arguments) {
    float *out = first_of(arguments);
    void *a = __TVMBackendAllocWorkspace(1, 0, 5000, 2, 32), *b = __TVMBackendAllocWorkspace(1, 0, 100, 2, 32);
    __TVMBackendFreeWorkspace(1, 0, b);
    void *c = __TVMBackendAllocWorkspace(1, 0, 4096, 2, 32);
    __TVMBackendFreeWorkspace(1, 0, a);
    void *d = __TVMBackendAllocWorkspace(1, 0, 8192, 2, 32);
    out[0] = a && b && a != b; out[1] = c == b; out[2] = d == a;
    __TVMBackendFreeWorkspace(1, 0, c);
    __TVMBackendFreeWorkspace(1, 0, d);
    return 0;
}

static int task(int number, Group *group, void *closure) {
    ((float *)closure)[0] = number; ((float *)closure)[1] = group->tasks; ((float *)closure)[2] = 7;
    return 0;
}
int parallel(void **arguments) { return __TVMBackendParallelLaunch(task, first_of(arguments), 0); }

int failing(void **arguments) { __TVMAPISetLastError("Assert fail: ndim == 4\\n"); return -1; }
int silent(void **arguments) { return -1; }
int calling(void **arguments) { void *found; return __TVMBackendGetFuncFromEnv(0, "tvm.contrib.sort", &found); }
"""


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("asking")
    (folder / "lib.c").write_text(_ASKING)
    subprocess.run(["cc", "-fPIC", "-c", "-o", "lib.o", "lib.c"], cwd=folder, check=True)
    runtime = compile_runtime(folder, target={}, device_kind="host", graph=False)
    link_objects(folder / "model.so", [folder / "lib.o", runtime], "host")
    return open_library(str(folder / "model.so"))


def test_the_smallest_free_memory_that_is_large_enough_is_given_again(asking):
    out = np.zeros(3, "float32")
    calls = Calls(asking, [("memory", [out])])
    for _ in range(2):
        calls.run()
        assert out.tolist() == [1, 1, 1]


def test_a_parallel_loop_is_one_task(asking):
    out = np.zeros(3, "float32")
    Calls(asking, [("parallel", [out])]).run()
    assert out.tolist() == [0, 1, 7]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("failing", "failing failed: Assert fail: ndim == 4"),
        ("calling", "calling failed: it calls tvm.contrib.sort, a function of TVM's runtime"),
        ("silent", "silent failed: it does not say why"),
    ],
)
def test_a_call_that_fails_says_which_and_why(asking, function, message):
    out = np.zeros(3, "float32")
    calls = Calls(asking, [("parallel", [out]), (function, [out])])
    for run in (calls.run, calls.run_timed):
        with pytest.raises(DeviceError) as caught:
            run()
        assert str(caught.value) == message


def test_a_function_that_is_not_there(asking):
    with pytest.raises(DeviceError, match=r"^the library has no function other: build the variant again$"):
        Calls(asking, [("other", [])])


def test_a_library_of_somebody_else(tmp_path):
    (tmp_path / "other.c").write_text("int other;\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "other.so", "other.c"], cwd=tmp_path, check=True)
    with pytest.raises(DeviceError, match=r"other\.so was not linked by layoutlab: build the variant again$"):
        open_library(str(tmp_path / "other.so"))
    with pytest.raises(DeviceError, match=r"^the library cannot be loaded: .*none\.so: cannot open shared object file"):
        open_library(str(tmp_path / "none.so"))


def graph_of(function: str = "f", dtype: str = "float32", flat: str = "0") -> dict:
    return {
        "nodes": [
            {"op": "null", "name": "x", "inputs": []},
            {
                "op": "tvm_op",
                "name": "f",
                "inputs": [[0, 0, 0]],
                "attrs": {"func_name": function, "num_inputs": "1", "num_outputs": "2", "flatten_data": flat},
            },
        ],
        "arg_nodes": [0],
        "node_row_ptr": [0, 1, 3],
        "heads": [[1, 1, 0]],
        "attrs": {
            "shape": ["list_shape", [[2, 3], [6], []]],
            "dltype": ["list_str", [dtype, "bool", "int8"]],
            "storage_id": ["list_int", [0, 1, 0]],
        },
    }


def test_a_graph_as_data():
    graph = read_graph(graph_of())
    assert [(call.function, call.tensors, call.flat) for call in graph.calls] == [("f", (0, 1, 2), False)]
    assert graph.inputs == {"x": 0}
    assert graph.outputs == (2,)
    assert graph.storage_bytes() == {0: 24, 1: 6}
    assert read_graph(graph_of(flat="1")).calls[0].flat
    # A change of shape that the graph executor does not execute.
    assert read_graph(graph_of("__nop")).calls == ()


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (graph_of("__copy"), "the graph copies between devices: build it for one CPU alone"),
        (graph_of(dtype="bfloat16"), "the graph has values of type bfloat16, which numpy does not know"),
    ],
)
def test_a_graph_that_cannot_run_here(graph, message):
    with pytest.raises(DeviceError, match=f"^{message}$"):
        read_graph(graph).storage_bytes()


def test_weights_are_read_by_name_and_damage_is_refused():
    data = (BUILT / "params.bin").read_bytes()
    shapes = {name: value.shape for name, value in read_params(memoryview(data)).items()}
    graph = read_graph(json.loads((BUILT / "graph.json").read_text()))
    assert shapes == {name: graph.tensors[graph.inputs[name]].shape for name in shapes}
    assert len(shapes) == 6
    with pytest.raises(DeviceError, match=r"^the weights are not as relay\.save_param_dict writes them: "):
        read_params(memoryview(bytes(1000)))
