# ruff: noqa: E501 - tables are shown as they are
"""Likely causes from planted times, and the forms of an explanation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layoutlab.engine.base import TaskCoverage
from layoutlab.engine.explanation import FunctionExperiments, Part, Timed
from layoutlab.engine.provenance import Operator
from layoutlab.explaining import Explanation
from layoutlab.report.causes import explained
from layoutlab.report.explain import explanations_text
from layoutlab.report.profile_data import ProfileRow

CONV = Operator(index=3, type="CONV_2D", output="y", shape=(1, 8, 8, 4), flop=1000, bytes=100, window="3x3")
ROW = ProfileRow(
    nodes=(2,),
    function="fused_conv2d_add1",
    ops=(CONV,),
    parts=(),
    transforms=(),
    shape=(1, 8, 8, 4),
    dtype="float32",
    layout="NHWC",
    calls=1,
    time_ms=0.03,
    share=0.1,
    flop=1000,
    bytes=100,
    task="fused_conv2d_add",
    best_us=10.0,
    ratio=3.0,
    slower=True,
)
TASK = TaskCoverage(name="fused_conv2d_add", ops=1, trials=4, failed=0, best_us=10.0, hit=True)


def experiments(warm=10.0, cold=10.0, again=10.0, parts=(), like_record=True) -> FunctionExperiments:
    return FunctionExperiments(
        function=ROW.function,
        warm=warm if isinstance(warm, Timed | None) else Timed(us=warm),
        cold=Timed(us=cold),
        again=None if again is None else Timed(us=again),
        parts=tuple(parts),
        like_record=like_record,
    )


def part(name: str, us: float, *transforms: str, tuned: bool = True) -> Part:
    return Part(function=name, transforms=transforms, tuned=tuned, timed=Timed(us=us))


FUSED_TRANSFORM = [part("conv2d", 25.0), part("layout_transform", 4.0, "layout_transform NHWC->NCHW4c")]


@pytest.mark.parametrize(
    ("row", "task", "found", "causes"),
    [
        (ROW, TASK, experiments(), ["not told apart by these experiments"]),
        (ROW, TASK, experiments(cold=28.0), ["cold cache: alone it takes as long when its data are not in the caches"]),
        (
            ROW,
            TASK,
            experiments(warm=29.0, cold=31.0, again=29.0),
            ["noisy tuning sample, or another machine state: its record takes 29.0 us now"],
        ),
        (
            ROW,
            TASK,
            experiments(warm=29.0, cold=31.0),
            ["other code: as it was built it is slower, alone as well, than as the tuner builds its record"],
        ),
        # The record takes as long now only because the machine is busy: the function alone does not.
        (ROW, TASK, experiments(again=29.0), ["not told apart by these experiments"]),
        (ROW, replace(TASK, hit=False), experiments(), ["record missed: the build did not take it"]),
        (
            ROW,
            TASK,
            experiments(like_record=False),
            ["different fusion: it has other parts than what its record was made for"],
        ),
        (
            replace(ROW, transforms=("layout_transform NHWC->NCHW4c",)),
            TASK,
            experiments(parts=FUSED_TRANSFORM),
            ["layout transform fused in: layout_transform NHWC->NCHW4c takes 4.00 us alone"],
        ),
        (
            replace(ROW, best_us=None, ratio=None, slower=False),
            replace(TASK, best_us=None, untuned_because="no trial reached it within the budget"),
            experiments(again=None, like_record=None),
            ["untuned: no trial reached it within the budget"],
        ),
        # As promised: whatever an experiment took.
        (replace(ROW, time_ms=0.011, ratio=1.1, slower=False), TASK, experiments(warm=20.0, cold=30.0, again=15.0), []),
    ],
)
def test_what_times_say(row, task, found, causes):
    assert list(explained(row, task, found).causes) == causes


def test_the_simulated_core_counts_with_cold_caches_always():
    found = explained(ROW, TASK, experiments(warm=None, cold=12.0, again=12.0), tuned_cold=True)
    assert (found.warm_us, found.causes) == (None, ("not told apart by these experiments",))


def explanation(simulated: bool, *rows) -> Explanation:
    return Explanation(variant="nhwc", device="CPU", simulated=simulated, end_to_end_ms=0.3, top=1, rows=rows)


TEXT = """\
nhwc: 0.300 ms end to end, on CPU

  node  computes                                        graph us    best us    re-measured us    alone warm us    alone cold us    transform us        unfused us  likely cause
------  --------------------------------------------  ----------  ---------  ----------------  ---------------  ---------------  --------------  ----------------  --------------------------------------------------------
     2  3 CONV_2D 3x3, layout_transform NHWC->NCHW4c        30.0       10.0              10.0           failed             28.0            4.00  29.0 (1 untuned)  layout transform fused in: layout_transform NHWC->NCHW4c
                                                                                                                                                                   takes 4.00 us alone

node 2: alone warm: failed: the run crashed its process (exit code -11)

untuned parts are naive loops; where the spec also has this variant with fuse: false, tuned, its records are used
"""

CSV = """\
variant,nodes,function,computes,task,slower,graph_us,best_us,again_us,warm_us,cold_us,transform_us,unfused_us,untuned,transforms,causes
nhwc,2,fused_conv2d_add1,"3 CONV_2D 3x3, layout_transform NHWC->NCHW4c",fused_conv2d_add,true,30,10,10,failed: the run crashed its process (exit code -11),28,4,29,1,layout_transform NHWC->NCHW4c,layout transform fused in: layout_transform NHWC->NCHW4c takes 4.00 us alone
"""


def test_an_experiment_that_crashes_costs_its_cell():
    crashed = Timed(failed="the run crashed its process (exit code -11)")
    parts = [part("conv2d", 25.0, tuned=False), FUSED_TRANSFORM[1]]
    row = replace(ROW, transforms=("layout_transform NHWC->NCHW4c",))
    found = explanation(False, explained(row, TASK, experiments(warm=crashed, cold=28.0, parts=parts)))
    assert explanations_text([found], "text") == TEXT
    assert explanations_text([found], "csv") == CSV


def test_nothing_to_explain():
    assert explanations_text([explanation(False)], "text") == (
        "nhwc: 0.300 ms end to end, on CPU\n\n"
        "no function is flagged as slower than its record promised; --top N explains the N slowest as well\n"
    )


def test_a_simulated_explanation():
    found = explanation(True, explained(ROW, TASK, experiments(warm=None, cold=12.0, again=12.0), True))
    lines = explanations_text([found], "text").splitlines()
    assert lines[0] == "nhwc: 0.300 simulated ms end to end, on CPU"
    assert "warm" not in lines[2]
    assert (
        lines[-1] == "on the simulated core a function alone is always counted with cold caches: there is no warm time"
    )
