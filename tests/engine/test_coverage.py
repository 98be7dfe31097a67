"""What tuning covered: kinds, spaces, failures that are really failures, and the build that takes what there is."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from tvm import te
from tvm.s_tir.meta_schedule.tune_context import _normalize_mod as normalize

from layoutlab import hooks
from layoutlab.engine.base import TuningOptions
from layoutlab.engine.relax.build import apply_records
from layoutlab.engine.relax.importer import import_model
from layoutlab.engine.relax.layout.canonicalise import canonicalise
from layoutlab.engine.relax.layout.convert import apply_plan
from layoutlab.engine.relax.layout.plan import plan
from layoutlab.engine.relax.lower import lower
from layoutlab.engine.relax.tune.coverage import coverage, with_only_schedules
from layoutlab.engine.relax.tune.failures import append_failures, first_failures, workload_key
from layoutlab.engine.relax.tune.kinds import task_kind
from layoutlab.engine.relax.tune.records import open_database
from layoutlab.engine.relax.tune.space import count_points, factorisations
from layoutlab.engine.relax.tune.task import HOPELESS_TRIALS
from layoutlab.engine.relax.tune.tuner import extract_tasks, tune
from layoutlab.engine.relax.tvm_cpu import meta_schedule, tvm
from layoutlab.errors import StageError

from ..conftest import TINY
from .running import tuning_options

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 1})
NCHW4C = ("NCHW", hooks.Nchwc(4))
NCHW = ("NCHW", hooks.keep)
NHWC = (None, hooks.keep)


def lowered(model: str, layout=NHWC, target=TARGET) -> tvm.IRModule:
    mod = canonicalise(import_model((TINY / f"{model}.tflite").read_bytes()))
    converted, _ = apply_plan(mod, plan(mod, *layout))
    return lower(converted, target, pack_weights=True)


def run(tasks, folder: Path, tuning: TuningOptions) -> meta_schedule.database.Database:
    database = open_database(folder)
    tune(tasks, TARGET, tuning, database, folder / "candidates", lambda event, **fields: None)
    return database


@pytest.mark.parametrize(
    ("model", "layout", "kinds"),
    [
        (
            "tiny_groups",
            NHWC,
            [
                ("conv2d", "NHWC"),
                ("group_conv2d", "NHWC"),
                ("depthwise_conv2d", "NHWC"),
                ("conv2d", "NHWC"),
                ("depthwise_conv2d", "NHWC"),
                ("mean", None),
                ("matmul", None),
                ("softmax", None),
            ],
        ),
        (
            "tiny_groups",
            NCHW4C,
            [
                ("reshape", None),
                ("conv2d", "NCHW1c->NCHW4c"),
                ("group_conv2d", "NCHW4c"),
                ("depthwise_conv2d", "NCHW4c"),
                ("conv2d", "NCHW4c"),
                ("depthwise_conv2d", "NCHW4c"),
                ("mean", None),
                ("reshape", None),
                ("matmul", None),
                ("softmax", None),
            ],
        ),
        (
            "tiny_odd",
            NCHW,
            [
                ("transpose", None),
                ("conv2d", "NCHW"),
                ("conv2d", "NCHW"),
                ("depthwise_conv2d", "NCHW"),
                ("pool2d", "NCHW"),
                ("conv2d", "NCHW"),
                ("mean", None),
                ("matmul", None),
                ("softmax", None),
            ],
        ),
    ],
)
def test_kinds_and_layouts_in_execution_order(model, layout, kinds):
    tasks = extract_tasks(lowered(model, layout), TARGET)
    assert [task_kind(task.dispatched[0]["main"]) for task in tasks] == kinds


def test_pools_and_transforms_of_packed_layouts():
    tasks = extract_tasks(lowered("tiny_inception", NCHW4C), TARGET)
    found = {str(task.task_name).rstrip("0123456789"): task_kind(task.dispatched[0]["main"]) for task in tasks}
    assert found["avg_pool2d"] == ("pool2d", "NCHW4c")
    assert found["max_pool2d"] == ("pool2d", "NCHW")
    assert found["te_layout_transform"] == ("layout_transform", None)
    assert found["concatenate"] == ("concatenate", None)


def test_flop_of_a_convolution_are_two_for_each_multiplication_and_two_for_bias_and_activation():
    tasks = extract_tasks(lowered("tiny_conv"), TARGET)
    function = tasks[0].dispatched[0]["main"]
    shapes = [list(map(int, info.shape)) for info in meta_schedule.arg_info.ArgInfo.from_prim_func(function)]
    (height, width, channels, filters), outputs = shapes[1], math.prod(shapes[-1])
    (first, *_) = coverage(meta_schedule.database.MemoryDatabase(), tasks, tune=False)
    assert first.flop == 2 * outputs * height * width * channels + 2 * outputs
    assert (channels, filters) == (shapes[0][-1], shapes[-1][-1])


@pytest.mark.parametrize(
    ("extent", "parts", "largest", "count"),
    [(12, 2, -1, 6), (12, 3, -1, 18), (12, 2, 4, 4), (1, 4, 64, 1), (7, 2, 4, 1), (64, 4, 64, 84), (-1, 2, 16, 1)],
)
def test_tilings_are_counted(extent, parts, largest, count):
    assert factorisations(extent, parts, largest) == count


def primfunc(scale) -> tvm.IRModule:
    """The sums of the rows of a 12 x 8 matrix whose elements went through `scale`."""
    data = te.placeholder((12, 8), "float32", name="data")
    scaled = te.compute((12, 8), lambda i, j: scale(data[i, j]), name="scaled")
    axis = te.reduce_axis((0, 8), "axis")
    total = te.compute((12,), lambda i: te.sum(scaled[i, axis], axis=axis), name="total")
    return normalize(te.create_prim_func([data, total]))


def task(name: str, mod: tvm.IRModule) -> meta_schedule.ExtractedTask:
    return meta_schedule.ExtractedTask(name, mod, TARGET, [mod], 1)


def test_a_space_is_the_product_of_its_decisions_summed_over_the_design_spaces():
    mod = primfunc(lambda value: value * 2.0)
    tiled, plain = tvm.s_tir.Schedule(mod), tvm.s_tir.Schedule(mod)
    block = tiled.get_sblock("total")
    tiled.split(tiled.get_loops(block)[0], tiled.sample_perfect_tile(tiled.get_loops(block)[0], 2, 4))
    tiled.sample_categorical([0, 16, 64], [0.2, 0.3, 0.5])
    tiled.compute_at(tiled.get_sblock("scaled"), tiled.sample_compute_location(tiled.get_sblock("scaled")))
    # 12 in two with the inner at most 4: 1, 2, 3, 4; three candidates; three loops, the root and inlined.
    assert count_points(mod, [tiled]) == 4 * 3 * 5
    assert count_points(mod, [tiled, plain]) == 4 * 3 * 5 + 1
    assert count_points(mod, [plain]) == 1
    partitioned = tvm.s_tir.Schedule(mod)
    partitioned.sample_partitioned_tile(partitioned.get_loops(partitioned.get_sblock("total"))[0], 2, 1, 2)
    assert count_points(mod, [plain, partitioned]) is None


def test_a_task_whose_candidates_all_fail_stops_and_says_what_the_compiler_said(tmp_path):
    """LLVM has no code for a shuffle between a GPU's threads."""
    bad = task(
        "bad", primfunc(lambda value: tvm.tirx.call_intrin("float32", "tirx.tvm_warp_shuffle", 0, value, 0, 0, 0))
    )
    tuning = tuning_options(400, batch=64)
    database = run([bad], tmp_path, tuning)
    (found,) = coverage(database, [bad])
    assert (found.trials, found.failed, found.best_us) == (HOPELESS_TRIALS, HOPELESS_TRIALS, None)
    assert "unknown intrinsic" in found.first_failure and "tirx.tvm_warp_shuffle" in found.first_failure
    assert found.untuned_because == f"every candidate failed: {found.first_failure}"

    resumed = run([bad], tmp_path, tuning)
    assert coverage(resumed, [bad]) == [found]


def test_a_task_of_one_point_gets_no_trial_and_its_schedule_only_with_several_threads(tmp_path):
    for cores, hit in ((1, False), (2, True)):
        target = tvm.target.Target({"kind": "llvm", "num-cores": cores})
        mod = lowered("tiny_groups", NCHW4C, target)
        tasks = [task for task in extract_tasks(mod, target) if str(task.task_name).startswith("reshape")]
        database = run(tasks, tmp_path / str(cores), tuning_options(20))
        covered = coverage(database, tasks)
        assert {(found.space, found.trials, found.untuned_because) for found in covered} == {
            (1, 0, "space of one point")
        }
        assert not (tmp_path / str(cores) / "records.jsonl").read_text()
        schedules, expected = with_only_schedules(database, tasks, covered)
        _, hits = apply_records(mod, target, schedules, pack_weights=True, expected=expected)
        names = {str(task.task_name) for task in tasks}
        assert len(names) == 2
        assert hits == expected == (names if hit else set())


def test_why_a_task_has_no_record():
    tasks = extract_tasks(lowered("tiny_dense"), TARGET)
    database = meta_schedule.database.MemoryDatabase()
    assert {found.untuned_because for found in coverage(database, tasks, tune=False)} == {"not tuned by the spec"}
    first, *others = coverage(database, tasks, skipped={0})
    assert (first.index, first.untuned_because) == (0, "skipped by the spec")
    assert {found.untuned_because for found in others} == {"no trial reached it within the budget"}


def test_a_tuned_task_whose_function_takes_no_record_fails_the_build():
    mod = lowered("tiny_dense")
    names = [str(task.task_name) for task in extract_tasks(mod, TARGET)]
    with pytest.raises(StageError) as caught:
        apply_records(mod, TARGET, meta_schedule.database.MemoryDatabase(), pack_weights=True, expected=names[:2])
    assert caught.value.stage == "build"
    assert caught.value.cause == (
        f"2 of 2 tasks with a schedule did not take it: {', '.join(sorted(names[:2]))}; their code would be naive loops"
    )


def test_the_first_failure_counts_and_a_torn_end_is_left_out(tmp_path):
    mod = primfunc(lambda value: value + 1.0)
    database = open_database(tmp_path)
    append_failures(database, mod, "sum", ["first\nline", "second"])
    path = tmp_path / "failures.jsonl"
    path.write_text(path.read_text() + '{"workload": "to')
    assert first_failures(database) == {workload_key(database, mod): "first\nline"}
    append_failures(open_database(tmp_path), mod, "sum", ["third"])
    lines = path.read_text().splitlines()
    assert [json.loads(line)["error"] for line in (*lines[:2], lines[3])] == ["first\nline", "second", "third"]
    assert lines[2] == '{"workload": "to'
