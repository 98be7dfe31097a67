# ruff: noqa: E501 - tables are shown as they are
"""Profiles from given times: their sums, what they flag, and every form of them."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, replace

import pytest

from layoutlab.device.kryo.cycles import Totals
from layoutlab.engine.base import Artifact, Census, TaskCoverage
from layoutlab.engine.provenance import AS_VIEW, ExecutedFunction, Operator, Provenance
from layoutlab.errors import StageError
from layoutlab.report.profile import profile_csv, profile_json, profile_text, profiles_text
from layoutlab.report.profile_data import measured_profile, simulated_profile
from layoutlab.roofline.peaks import Peaks, Stream


def operator(index: int, kind: str, flop: int) -> Operator:
    return Operator(
        index=index,
        type=kind,
        output=f"t{index}",
        shape=(1, 8, 8, 4),
        flop=flop,
        bytes=2048,
        window="3x3" if kind == "CONV_2D" else None,
    )


def function(node: int, name: str, ops=(), **changes) -> ExecutedFunction:
    given = {
        "node": node,
        "function": name,
        "task": None,
        "ops": ops,
        "parts": (),
        "transforms": (),
        "shape": (1, 1, 8, 8, 4),
        "dtype": "float32",
        "layout": "NCHW4c",
        "flop": 0,
        "bytes": 2000,
    }
    return ExecutedFunction(**(given | changes))


def task(name: str, best_us: float | None) -> TaskCoverage:
    return TaskCoverage(name=name, ops=1, trials=8, failed=0, best_us=best_us)


ARTIFACT = Artifact(
    path="variant.so",
    sha256="0",
    census_before=Census(conv_layouts={}, transforms=()),
    census_after=Census(conv_layouts={}, transforms=()),
    tasks=(task("conv", 100.0), task("mean", 20.0), task("move", None)),
    provenance=Provenance(
        operators=(
            operator(0, "CONV_2D", 8_000_000),
            operator(1, "ADD", 256),
            operator(2, "CONV_2D", 8_000_000),
            operator(3, "MEAN", 2000),
            operator(4, "RESHAPE", 0),
        ),
        functions=(
            function(0, "move1", transforms=("layout_transform NHWC->NCHW4c",), task="move"),
            function(1, "conv_prepacked", (0, 1), task="conv", flop=8_000_256),
            function(2, "conv_prepacked", (2,), parts=(3,), task="conv", flop=8_000_000),
            function(3, "mean1", (3,), task="mean", flop=2000, shape=(1, 4), layout=None),
        ),
        removed={4: AS_VIEW},
    ),
)


def taken(*times_us: float, end_to_end_ms: float = 0.5) -> dict:
    return {
        "functions": ["move1", "conv_prepacked", "conv_prepacked", "mean1"],
        "times_us": [list(times_us)] * 3,
        "end_to_end_ms": [end_to_end_ms] * 3,
        "instrumented_ms": [0.6, 0.5, 0.7],
        "conditions": [],
        "runtime": "TVM",
    }


PROFILE = measured_profile("nchw4c", "this CPU", ARTIFACT, taken(10.0, 120.0, 250.0, 40.0))

TEXT = """\
nchw4c: 0.500 ms end to end, 16.0 MFLOP, 32.0 GFLOP/s, on this CPU
medians of 3 inferences; another 3 with each function timed took 0.600 ms

  node  computes                       output               us    share    MFLOP    GFLOP/s    KB    GB/s    best us    real/best  function
------  -----------------------------  ----------------  -----  -------  -------  ---------  ----  ------  ---------  -----------  --------------
     2  2 CONV_2D 3x3, (3 MEAN)        1x1x8x8x4 NCHW4c  250.0   50.0 %     8.00       32.0     2     0.0      100.0  2.50 SLOWER  conv_prepacked
     1  0 CONV_2D 3x3, 1 ADD           1x1x8x8x4 NCHW4c  120.0   24.0 %     8.00       66.7     2     0.0      100.0         1.20  conv_prepacked
     3  3 MEAN                         1x4                40.0    8.0 %     0.00        0.1     2     0.1       20.0  2.00 SLOWER  mean1
     0  layout_transform NHWC->NCHW4c  1x1x8x8x4 NCHW4c   10.0    2.0 %     0.00          -     2     0.2          -            -  move1
        all functions                                    420.0   84.0 %
        remainder                                         80.0   16.0 %
        end to end                                       500.0  100.0 %

type       calls     ms    share    MFLOP    GFLOP/s
-------  -------  -----  -------  -------  ---------
CONV_2D        2  0.370   74.0 %    16.00       43.2
MEAN           1  0.040    8.0 %     0.00        0.1
layout         1  0.010    2.0 %     0.00          -

functions with a tuning record take 0.410 ms here; their best times there, each alone, sum to 0.220 ms

SLOWER: node 2, node 3: a call takes more than 1.5 times its best time in the tuning records, and that costs more than 1% of an inference

in no function: 4 RESHAPE: moves nothing: its result is its input under another shape
"""


def test_the_text():
    assert profile_text(PROFILE) == TEXT


PEAKS = Peaks(
    device="this CPU",
    threads=1,
    vector_floats=8,
    gflops=100.0,
    spread=0.0,
    streams=(
        Stream(name="read", working_set_bytes=1 << 14, gigabytes_per_s=0.2, spread=0.0),
        Stream(name="read", working_set_bytes=1 << 24, gigabytes_per_s=0.1, spread=0.0),
    ),
)

BOUNDED = """\
nchw4c: 0.500 ms end to end, 16.0 MFLOP, 32.0 GFLOP/s, on this CPU
medians of 3 inferences; another 3 with each function timed took 0.600 ms
by this device's peaks (measured: 100.0 GFLOP/s, 0.1 to 0.2 GB/s) the functions take at least 0.180 ms, 36% of this

  node  computes                       output               us    share    MFLOP    GFLOP/s    KB    GB/s    bound us    of limit    binds    best us    real/best  function
------  -----------------------------  ----------------  -----  -------  -------  ---------  ----  ------  ----------  ----------  -------  ---------  -----------  --------------
     2  2 CONV_2D 3x3, (3 MEAN)        1x1x8x8x4 NCHW4c  250.0   50.0 %     8.00       32.0     2     0.0       80.00        32 %  compute      100.0  2.50 SLOWER  conv_prepacked
     1  0 CONV_2D 3x3, 1 ADD           1x1x8x8x4 NCHW4c  120.0   24.0 %     8.00       66.7     2     0.0       80.00        67 %  compute      100.0         1.20  conv_prepacked
     3  3 MEAN                         1x4                40.0    8.0 %     0.00        0.1     2     0.1       10.00        25 %   memory       20.0  2.00 SLOWER  mean1
     0  layout_transform NHWC->NCHW4c  1x1x8x8x4 NCHW4c    8.0    1.6 %     0.00          -     2     0.2       10.00       125 %   memory          -            -  move1
        all functions                                    418.0   83.6 %                                        180.00        43 %
        remainder                                         82.0   16.4 %
        end to end                                       500.0  100.0 %                                        180.00        36 %
"""


def test_the_bounds_by_a_devices_peaks():
    """What is faster than its bound, for its data was in a nearer cache, is shown as it is."""
    found = measured_profile("nchw4c", "this CPU", ARTIFACT, taken(8.0, 120.0, 250.0, 40.0), PEAKS)
    assert profile_text(found).startswith(BOUNDED)
    (move,) = [row for row in csv.DictReader(profile_csv(found).splitlines()) if row["function"] == "move1"]
    assert (move["intensity"], move["bound_us"], move["of_limit"], move["binds"]) == ("0", "10", "1.2500", "memory")
    data = json.loads(profile_json(found))
    assert (data["bounds_ms"], data["peaks"]["gflops"]) == (pytest.approx(0.18000256), 100.0)
    assert data["rows"][0]["intensity"] == 4000.0


def test_the_bound_of_several_calls_is_their_sum():
    found = simulated_profile("nchw4c", "a core", ARTIFACT, COUNTED, PEAKS)
    assert [(row.function, row.bound_us, row.binds) for row in found.rows] == [
        ("conv_prepacked", pytest.approx(160.00256), "compute"),
        ("move1", pytest.approx(10.0), "memory"),
        ("mean1", pytest.approx(10.0), "memory"),
    ]


def test_what_is_slower_by_little_is_not_flagged():
    """Twice a best time of 2 us is nothing that an inference of 10 ms would notice, or that could be timed."""
    quick = replace(ARTIFACT, tasks=(task("conv", 100.0), task("mean", 2.0)))
    found = measured_profile("x", "y", quick, taken(10.0, 120.0, 120.0, 4.0, end_to_end_ms=10.0))
    assert [(row.function, row.ratio, row.slower) for row in found.rows] == [
        ("conv_prepacked", 1.2, False),
        ("conv_prepacked", 1.2, False),
        ("move1", None, False),
        ("mean1", 2.0, False),
    ]


def test_one_function_that_does_not_keep_its_promise_is_flagged_and_no_other():
    """As after a record that was made elsewhere: its best time says 50 us, the code needs 120."""
    promised = replace(ARTIFACT, tasks=(task("conv", 50.0), task("mean", 39.0)))
    found = measured_profile("x", "y", promised, taken(10.0, 120.0, 60.0, 40.0))
    assert [row.nodes for row in found.rows if row.slower] == [(1,)]


def test_a_remainder_may_be_negative():
    found = measured_profile("x", "y", ARTIFACT, taken(100.0, 200.0, 200.0, 100.0, end_to_end_ms=0.59))
    assert found.functions_ms == pytest.approx(0.6)
    assert found.remainder_ms == pytest.approx(-0.01)


def test_a_busy_machine_is_noted():
    """Each function is interrupted once, in another inference: no median shows it, every inference has it."""
    busy = taken(10.0, 120.0, 250.0, 40.0)
    busy["times_us"] = [[10.0, 120.0, 250.0, 1040.0], [10.0, 120.0, 1250.0, 40.0], [10.0, 1120.0, 250.0, 40.0]]
    text = profile_text(measured_profile("x", "y", ARTIFACT, busy))
    assert (
        "BUSY: something else ran on this machine: an inference was interrupted for 1.000 ms, which are in the "
        "end-to-end time and in the remainder; profile again on a quiet machine\n" in text
    )
    assert "BUSY" not in TEXT


@pytest.mark.parametrize(
    ("ran", "message"),
    [
        (["move1", "mean1"], "profile: function 1 that ran is mean1, and conv_prepacked was built in its place"),
        (["move1"], "profile: 1 functions ran, and the library was built of 4"),
    ],
)
def test_other_functions_than_those_that_were_built(ran, message):
    with pytest.raises(StageError) as raised:
        measured_profile("x", "y", ARTIFACT, {**taken(1.0), "functions": ran})
    assert str(raised.value) == message


def test_csv_has_all_rows_and_the_remainder():
    rows = list(csv.DictReader(profiles_text([PROFILE, PROFILE], "csv").splitlines()))
    assert len(rows) == 2 * (4 + 2)
    first = rows[0]
    assert (first["variant"], first["nodes"], first["ops"], first["parts"]) == (
        "nchw4c",
        "2",
        "2 CONV_2D 3x3",
        "3 MEAN",
    )
    assert (first["shape"], first["time_ms"], first["ratio"], first["slower"]) == ("1x1x8x8x4", "0.25", "2.5", "true")
    assert [row["function"] for row in rows[4:6]] == ["remainder", "end to end"]
    assert float(rows[4]["time_ms"]) == pytest.approx(0.08)
    assert profile_csv(PROFILE).splitlines()[1:] == profile_csv(PROFILE, header=False).splitlines()


def test_json_says_where_each_operator_went():
    data = json.loads(profile_json(PROFILE))
    assert [(op["type"], op["node"], op["removed"]) for op in data["operators"]] == [
        ("CONV_2D", 1, None),
        ("ADD", 1, None),
        ("CONV_2D", 2, None),
        ("MEAN", 3, None),
        ("RESHAPE", None, AS_VIEW),
    ]
    assert data["raw"]["times_us"] == [[10.0, 120.0, 250.0, 40.0]] * 3
    assert data["remainder_ms"] == pytest.approx(0.08)


def counts(kcycles: float) -> dict:
    zero = dict.fromkeys(("instructions", "unpriced", "accesses", "l1_misses", "l1_nonsequential", "l2_misses"), 0)
    return asdict(Totals(compute_cycles=kcycles * 1e3, **zero))


COUNTED = {
    "counts": counts(245.0 * 2),
    "functions": [
        {"name": "conv_prepacked", **counts(245.0)},
        {"name": "move1", **counts(49.0)},
        {"name": "mean1", **counts(49.0)},
        {"name": "[libc.so.6]", **counts(147.0)},
    ],
    "runtime": "TVM",
}

SIMULATED = """\
nchw4c: 0.200 simulated ms end to end, 16.0 MFLOP, 80.0 GFLOP/s, on a core

  node    calls  computes                                       output               us    share    MFLOP    GFLOP/s    KB    GB/s    best us    real/best  function
------  -------  ---------------------------------------------  ----------------  -----  -------  -------  ---------  ----  ------  ---------  -----------  --------------
  1, 2        2  0 CONV_2D 3x3, 1 ADD, 2 CONV_2D 3x3, (3 MEAN)  1x1x8x8x4 NCHW4c  100.0   50.0 %    16.00      160.0     4     0.0      100.0         0.50  conv_prepacked
     0        1  layout_transform NHWC->NCHW4c                  1x1x8x8x4 NCHW4c   20.0   10.0 %     0.00          -     2     0.1          -            -  move1
     3        1  3 MEAN                                         1x4                20.0   10.0 %     0.00        0.1     2     0.1       20.0         1.00  mean1
                 all functions                                                    140.0   70.0 %
                 remainder                                                         60.0   30.0 %
                 end to end                                                       200.0  100.0 %
"""


def test_a_simulated_core_has_the_cost_of_a_symbol_and_exact_sums():
    found = simulated_profile("nchw4c", "a core", ARTIFACT, COUNTED)
    assert found.functions_ms == pytest.approx(0.14)
    assert found.remainder_ms == pytest.approx(147.0 / 245.0 / 10)
    assert profile_text(found).startswith(SIMULATED)


def test_a_function_that_was_not_counted():
    counted = {**COUNTED, "functions": COUNTED["functions"][1:]}
    with pytest.raises(StageError) as raised:
        simulated_profile("nchw4c", "a core", ARTIFACT, counted)
    assert str(raised.value) == "profile: the library has functions that did not run: conv_prepacked"
