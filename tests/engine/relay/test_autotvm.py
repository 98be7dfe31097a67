"""AutoTVM's tasks, tuners and log in the Relay engine, with the real TVM of the second interpreter."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import layoutlab.engine.relay

_PROGRAM = Path(__file__).with_name("autotvm_program.py")
_MODEL = Path(__file__).parents[3] / "experiments" / "models" / "tiny" / "tiny_conv.tflite"


@pytest.fixture(scope="module")
def facts(relay_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program found out, in one process: that TVM takes seconds to start."""
    folder = tmp_path_factory.mktemp("autotvm")
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(layoutlab.engine.relay.__file__).parent),
        "TOPHUB_LOCATION": "NONE",
        "TVM_NUM_THREADS": "1",
    }
    command = [relay_python, str(_PROGRAM), str(_MODEL), str(folder), str(folder / "facts.json")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "facts.json").read_text())


def test_the_tasks_are_those_that_autotvm_extracts(facts: dict[str, Any]) -> None:
    found = facts["extraction"]
    assert sorted(found["ours"]) == sorted(found["theirs"])
    assert len(set(found["names"])) == len(found["names"])


def test_of_a_convolution_each_implementation_is_a_task(facts: dict[str, Any]) -> None:
    found = facts["extraction"]
    of_first = [name for name in found["names"] if name.endswith("_1x8x16x16_16x8x3x3")]
    assert [name.split("_1x8")[0] for name in of_first[:2]] == ["conv2d_nchw_spatial_pack.arm_cpu", "conv2d_NCHWc.x86"]
    assert found["kinds"][0] == ["conv2d", "NCHW"]
    assert found["rivals"][0] == len(of_first)


@pytest.mark.parametrize("tuner", ["xgb", "ga", "random", "gridsearch"])
def test_a_tuner_spends_the_budget_and_measures_nothing_twice(facts: dict[str, Any], tuner: str) -> None:
    found = facts["searches"][tuner]
    asked = [tuple(point) for point in found["asked"]]
    assert len(set(asked)) == len(asked) == found["tuned"]["lines"] == 40
    assert found["tuned"]["ended"] == "budget"


@pytest.mark.parametrize("tuner", ["xgb", "ga", "random", "gridsearch"])
def test_the_same_seed_and_costs_give_the_same_trials(facts: dict[str, Any], tuner: str) -> None:
    assert facts["searches"][tuner]["repeats"]


def test_gridsearch_asks_for_points_in_order(facts: dict[str, Any]) -> None:
    points: dict[str, list[int]] = {}
    for name, index in facts["searches"]["gridsearch"]["asked"]:
        points.setdefault(name, []).append(index)
    assert all(indices == list(range(len(indices))) for indices in points.values())


def test_trials_end_with_the_space(facts: dict[str, Any]) -> None:
    found = facts["clipped"]
    assert found["ended"] == "nothing left"
    assert found["lines"] == found["space"]


def test_a_task_without_a_valid_candidate_is_given_up_and_says_why(facts: dict[str, Any]) -> None:
    task = facts["failing"]["tasks"][1]
    assert (task["trials"], task["failed"], task["best_us"]) == (32, 32, None)
    assert task["untuned_because"] == "every candidate failed: INSTANTIATION_ERROR: too many lanes"


def test_tasks_that_were_not_chosen_are_skipped(facts: dict[str, Any]) -> None:
    others = {task["untuned_because"] for task in facts["failing"]["tasks"][:1]}
    assert others == {"skipped by the spec"}


def test_a_killed_run_goes_on_from_its_whole_lines(facts: dict[str, Any]) -> None:
    found = facts["resumed"]
    assert (found["asked"], found["lines"]) == (15, 40)
    assert found["said"] == "the last line of autotvm.log was torn (60 bytes) and was dropped"


def test_a_task_ends_when_its_best_does_not_improve(facts: dict[str, Any]) -> None:
    assert facts["early"]["ended"] == "early stop"
    assert facts["early"]["lines"] < 90  # the points of its space


def test_candidates_are_built_and_timed_and_autotvm_reads_the_log(facts: dict[str, Any]) -> None:
    found = facts["measured"]
    assert found["tuned"]["ended"] == "budget"
    assert found["loaded"] == found["tuned"]["lines"] == 8
    assert found["known"] > 0
    assert any(task["best_us"] for task in found["tuned"]["tasks"])


def test_what_the_hook_packs_takes_over_the_record(facts: dict[str, Any]) -> None:
    convs = [query for query in facts["measured"]["queries"] if "conv2d" in query[0]]
    assert convs == [["nn.contrib_conv2d_NCHWc", "conv2d_NCHWc.x86", True]] * 2
    marked = [task for task in facts["measured"]["marked"] if task["kind"] == "conv2d"]
    assert [(task["ops"], task["hit"]) for task in marked] == [(1, True)] * 2


def test_of_rivals_the_one_that_is_taken_has_the_ops(facts: dict[str, Any]) -> None:
    dense = [task["ops"] for task in facts["measured"]["marked"] if task["kind"] == "matmul"]
    assert sorted(dense) == [0, 1]


def test_untuned_operators_are_collected_one_by_one(facts: dict[str, Any]) -> None:
    convs = [query for query in facts["untuned"] if "conv2d" in query[0]]
    assert convs == [["nn.conv2d", "conv2d_NHWC_hybrid.arm_cpu", False, True]] * 2


def test_it_is_said_how_many_lines_of_a_lent_log_fit(facts: dict[str, Any]) -> None:
    assert facts["borrowed"] == (
        "lent.log: 8 lines fit, 1 are of other workloads, 1 are for other targets, "
        "1 are of design spaces that this TVM has not, 1 are unreadable"
    )


def test_rpc_is_refused_with_what_to_do(facts: dict[str, Any]) -> None:
    assert facts["refused"] == (
        "a variant of the Relay engine cannot be tuned on a device over RPC: tune where you can and give the log "
        "(tuning.logs), or set tune: false"
    )


def test_the_graph_tuner_chooses_a_record_of_each_convolution(facts: dict[str, Any]) -> None:
    found = facts["graph_tuned"]
    assert found["chosen"] == ["conv2d_NCHWc.x86"] * 2
    assert found["hits"] == [True] * 2


def test_the_graph_tuner_is_refused_where_convolutions_have_several_templates(facts: dict[str, Any]) -> None:
    assert facts["graph_tuned"]["refused"] == (
        "graph_tuner needs one template for each convolution, of conv2d_NCHWc.x86 and depthwise_conv2d_NCHWc.x86, and "
        "conv2d_nchw_spatial_pack.arm_cpu_1x8x16x16_16x8x3x3 is one of 3: leave graph_tuner out, or convert to NCHW "
        "for an x86 target"
    )
