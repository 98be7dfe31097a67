# ruff: noqa: E501 - tables are shown as they are
"""The table in all its forms, from a store's events to whole texts."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from layoutlab.engine.base import (
    EVERY_FAILED,
    NOT_REACHED,
    NOT_TUNED,
    ONE_POINT,
    Artifact,
    Census,
    LayoutTransform,
    TaskCoverage,
    to_json,
)
from layoutlab.errors import UsageError
from layoutlab.report.comparison import Comparison, compare
from layoutlab.report.coverage import coverage_csv, coverage_notes, tasks_text
from layoutlab.report.files import write_results
from layoutlab.report.pairs import pairs_csv
from layoutlab.report.table import csv_table, json_table, markdown_table, terminal_table
from layoutlab.spec.models import Spec
from layoutlab.store import Store

SPEC = Spec.model_validate(
    {
        "name": "two_layouts",
        "description": "A made-up comparison | with a *bar* and <tags>.",
        "model": {"file": "x.tflite"},
        "variants": (
            {"name": "nhwc", "alter_op_layout": "keep"},
            {"name": "nchw8c", "convert_layout": "NCHW", "alter_op_layout": "nchwc"},
            {"name": "wrong", "convert_layout": "NCHW"},
            {"name": "broken", "alter_op_layout": "my.hooks:broken"},
            {"name": "untuned", "tune": False},
        ),
        "tuning": {"trials": 100},
        "measure": {"rounds": 6, "repeats": 2},
    }
)
STATE = {"load_1min": 0.5, "governor": None, "frequency_khz": None}
VERSIONS = {"layoutlab": "0.1.0", "apache-tvm": "0.27.0.post1"}


def artifact(layouts: dict[str, int], transforms: int, tuned: bool) -> Artifact:
    transform = LayoutTransform(
        op="permute_dims",
        after="input",
        before="nn.conv2d",
        from_shape=(1, 4, 4, 3),
        to_shape=(1, 3, 4, 4),
        moved_bytes=384,
    )
    return Artifact(
        path="/gone/variant.so",
        sha256="0" * 64,
        census_before=Census(conv_layouts={"NHWC": 3}, transforms=()),
        census_after=Census(conv_layouts=layouts, transforms=(transform,) * transforms),
        tasks=(
            TaskCoverage(
                name="fused_conv2d_add",
                ops=2,
                trials=90,
                failed=4,
                best_us=10.0 if tuned else None,
                kind="conv2d",
                layout="NHWC",
                space=10**400,
                flop=20_000.0,
                untuned_because=None if tuned else NOT_TUNED,
            ),
            TaskCoverage(
                name="softmax",
                ops=1,
                trials=10,
                failed=10,
                best_us=None,
                index=1,
                kind="softmax",
                space=36,
                flop=1000.0,
                first_failure="the build failed: no kernel" if tuned else None,
                untuned_because=f"{EVERY_FAILED}: the build failed: no kernel" if tuned else NOT_TUNED,
            ),
            TaskCoverage(
                name="reshape",
                ops=1,
                trials=0,
                failed=0,
                best_us=None,
                index=2,
                kind="reshape",
                space=1,
                flop=0.0,
                untuned_because=ONE_POINT if tuned else NOT_TUNED,
            ),
        ),
    )


def record(store: Store, spec: Spec = SPEC) -> None:
    """What a run of SPEC leaves: two good rows, wrong outputs, a hook that raised, and an untuned row."""
    store.append(
        "run",
        spec=spec.model_dump(mode="json"),
        model="x.tflite",
        model_sha256="a" * 64,
        model_bytes=15_692_704,
        target={"kind": "llvm", "mcpu": "some-cpu", "num-cores": 1},
        device="Some CPU",
        device_reason="runs on this machine, Some CPU (x86_64), with its own target",
        unit="ms",
        threads=1,
        versions=VERSIONS,
    )
    store.append("baseline", key="b", runtime="LiteRT 2.3.0, 1 thread, XNNPACK on")
    layouts = {
        "nhwc": ({"NHWC": 3}, 0),
        "nchw8c": ({"NCHW3c->NCHW8c": 1, "NCHW8c": 2}, 2),
        "wrong": ({"NCHW": 3}, 2),
        "untuned": ({"NHWC": 3}, 0),
    }
    for name, (conv_layouts, transforms) in layouts.items():
        tuned = name != "untuned"
        budget = {"trials": 100} if tuned else None
        store.append("uses", variant=name, built=name, budget=budget)
        built = to_json(artifact(conv_layouts, transforms, tuned))
        store.append("built", variant=name, key=name, budget=budget, artifact=built)
        ok = name != "wrong"
        check = {"ok": ok, "max_abs": 1e-6 if ok else 0.5, "top1": 5 if ok else 0, "sets": 5}
        store.append("checked", variant=name, key=name, check={**check, "problem": "" if ok else "3 values differ"})
    store.append(
        "failed",
        variant="wrong",
        stage="check",
        cause="outputs differ from TFLite's: 3 values differ",
        log="w.log",
        exit_code=4,
    )
    store.append(
        "failed",
        variant="broken",
        stage="layout",
        cause="the hook raised KeyError at conv 0: 'x'",
        log="b.log",
        exit_code=1,
    )
    for number in range(spec.measure.rounds):
        wobble = 1 + number / 1000
        for row, ms in (("tflite", 4.0), ("nhwc", 6.0), ("nchw8c", 3.0), ("untuned", 60.0)):
            samples = [ms * wobble, ms * wobble + 0.001]
            store.append("samples", protocol="p", round=number, row=row, samples_ms=samples, conditions=[STATE, STATE])
    store.append("finished", protocol="p")


@pytest.fixture
def comparison(tmp_path):
    with Store(tmp_path / "runs") as store:
        record(store)
        return compare(store)


def test_verdicts_and_ratios(comparison):
    rows = {row.name: row for row in comparison.rows}
    assert list(rows) == ["nhwc", "nchw8c", "wrong", "broken", "untuned", "tflite"]
    assert (rows["nhwc"].ratio.verdict, rows["nchw8c"].ratio.verdict) == ("slower", "faster")
    assert rows["nchw8c"].speedup == pytest.approx(20, rel=0.01)
    assert rows["nchw8c"].flags == ("1 ops untuned",)
    assert rows["untuned"].flags == ("untuned",)
    assert (rows["nchw8c"].ops_tuned, rows["nchw8c"].ops, rows["nchw8c"].trials_failed) == (2, 4, 14)


def test_a_wrong_or_broken_variant_has_no_latency_and_sets_the_exit_code(comparison):
    rows = {row.name: row for row in comparison.rows}
    for name in ("wrong", "broken"):
        assert (rows[name].latency, rows[name].ratio, rows[name].speedup) == (None, None, None)
    assert comparison.exit_code == 4


TERMINAL = """\
two_layouts: x.tflite, 15.7 MB

variant    conv layouts                      ms (MAD)       x TFLite [95 %]         verdict    vs untuned    transforms    tuned           trials     outputs  flags
---------
nhwc       3 NHWC                       6.016 (0.009)     1.50 [1.50, 1.50]          slower         10.0x             0      2/4 (1 of one point)  100 (14 failed)  ok (1e-06)  1 ops untuned
nchw8c     1 NCHW3c->NCHW8c, 2 NCHW8c   3.008 (0.005)     0.75 [0.75, 0.75]          faster         20.0x             2      2/4 (1 of one point)  100 (14 failed)  ok (1e-06)  1 ops untuned
wrong      3 NCHW                                   -                     -   wrong outputs             -             2      2/4 (1 of one point)  100 (14 failed)       WRONG  -
broken     -                                        -                     -  failed: layout             -             -        -                -           -  -
untuned    3 NHWC                      60.150 (0.090)  15.00 [15.00, 15.00]          slower          1.0x             0      0/4                -  ok (1e-06)  untuned
tflite     -                            4.010 (0.006)                     -        baseline             -             -        -                -           -  -

variant        takes x [95 %]  of        verdict
---------
nhwc        2.00 [2.00, 2.00]  nchw8c     slower
nhwc        0.10 [0.10, 0.10]  untuned    faster
nchw8c      0.05 [0.05, 0.05]  untuned    faster

wrong: check failed: outputs differ from TFLite's: 3 values differ (log: w.log)
broken: layout failed: the hook raised KeyError at conv 0: 'x' (log: b.log)
nhwc: 3 tasks, 1 tuned (97.6 % of the FLOP), 1 of one point, 1 without a valid candidate; 100 trials, 14 failed
nhwc, softmax: every candidate failed: the build failed: no kernel
nhwc, reshape: space of one point
nchw8c: 3 tasks, 1 tuned (97.6 % of the FLOP), 1 of one point, 1 without a valid candidate; 100 trials, 14 failed
nchw8c, softmax: every candidate failed: the build failed: no kernel
nchw8c, reshape: space of one point
wrong: 3 tasks, 1 tuned (97.6 % of the FLOP), 1 of one point, 1 without a valid candidate; 100 trials, 14 failed
wrong, softmax: every candidate failed: the build failed: no kernel
wrong, reshape: space of one point
untuned: 3 tasks, not tuned by the spec
device: runs on this machine, Some CPU (x86_64), with its own target
baseline: LiteRT 2.3.0, 1 thread, XNNPACK on
median of 6 rounds in fresh processes, rows interleaved, 2 samples of at least 100 ms each; intervals by bootstrap over rounds, ratios without the highest and lowest fifth of the rounds
each round: 1 thread, not pinned to cores, no cool-down, 500 ms of warm-up
"""


def squeezed(text: str) -> list[str]:
    """Lines without the padding of columns, and without the rule under the header."""
    return [" ".join(line.split()) for line in text.splitlines() if not line.startswith("---")]


def test_the_terminal_shows_all_of_it(comparison):
    assert squeezed(terminal_table(comparison)) == squeezed(TERMINAL)


def test_markdown_is_a_page_with_how_to_repeat_it(comparison):
    text = markdown_table(comparison)
    assert text.startswith(
        "# two_layouts\n\nA made-up comparison \\| with a \\*bar\\* and &lt;tags>.\n\nModel: x.tflite"
    )
    table = [line for line in text.splitlines() if line.startswith("|")]
    main, between, spread = table[: 2 + 6], table[8 : 8 + 2 + 3], table[13:]
    assert len({line.count("|") for line in main}) == 1
    assert squeezed(between[2]) == ["| nhwc | 2.00 [2.00, 2.00] | nchw8c | slower |"]
    assert squeezed(spread[2]) == ["| nhwc | 6.000 | 6.001 | 6.016 | 6.029 | 0.009 | 6 | 12 |"]
    assert len(spread) == 2 + 4
    for line in (
        f"- model sha256: {'a' * 64}",
        "- target: llvm -mcpu=some-cpu -num-cores=1",
        "- device: Some CPU, 1 thread",
        "- versions: layoutlab 0.1.0, apache-tvm 0.27.0.post1",
        "- tuning: 100 trials a variant, evolutionary search, cost model xgb, weights packed, seed 1",
        "- outputs: 5 seeded inputs, tolerance 0.0001 + 0.001 x \\|TFLite\\|, seed 1",
        "- conditions: load up to 0.5, governor not readable, frequency not readable, CPU temperature not readable, "
        "thermal status not readable",
    ):
        assert line in text.splitlines()


def test_csv_has_one_line_a_row_and_full_numbers(comparison):
    rows = list(csv.DictReader(io.StringIO(csv_table(comparison))))
    assert [row["variant"] for row in rows] == ["nhwc", "nchw8c", "wrong", "broken", "untuned", "tflite"]
    assert float(rows[1]["median_ms"]) == pytest.approx(3.008, abs=1e-3)
    assert rows[1]["layout_transform_bytes"] == "768"
    assert rows[2]["median_ms"] == ""
    assert rows[3]["failure"] == "layout: the hook raised KeyError at conv 0: 'x'"
    assert rows[0]["outputs_top1"] == "5/5"


def test_json_holds_everything_with_the_raw_samples(comparison):
    data = json.loads(json_table(comparison))
    assert data["format"] == 1
    assert len(data["samples_ms"]["nchw8c"]) == 6
    assert data["rows"][1]["ratio"]["verdict"] == "faster"
    assert data["run"]["versions"] == VERSIONS


def test_the_same_events_give_the_same_files(tmp_path, comparison):
    write_results(comparison, tmp_path / "a")
    with Store(tmp_path / "runs") as store:
        write_results(compare(store), tmp_path / "b")
    names = ["coverage.csv", "pairs.csv", "table.csv", "table.json", "table.md"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == names


def test_a_failure_of_an_earlier_run_is_forgotten(tmp_path):
    with Store(tmp_path / "runs") as store:
        store.append("run")
        store.append("failed", variant="nhwc", stage="tune", cause="old", log="", exit_code=1)
        record(store)
        assert compare(store).rows[0].failure is None


def test_an_unfinished_run_has_no_table(tmp_path):
    with Store(tmp_path / "runs") as store:
        store.append("run")
        with pytest.raises(UsageError, match="holds no finished run: run the spec first"):
            compare(store)


def test_few_rounds_are_said(tmp_path):
    spec = SPEC.model_copy(update={"measure": SPEC.measure.model_copy(update={"rounds": 3})})
    with Store(tmp_path / "runs") as store:
        record(store, spec)
        assert "only 3 rounds: for trying out, not for publication" in terminal_table(compare(store))


TASKS = """\
two_layouts: what tuning covered

nhwc
ID Name FLOP Weight Speed (GFLOPS) Latency (us) Weighted Latency (us) Trials Kind Layout Space Failed Untuned because
0 fused_conv2d_add 20000 2 2.00 10.00 20.00 90 conv2d NHWC 1.0e+400 4 -
1 softmax 1000 1 - - - 10 softmax - 36 10 every candidate failed: the build failed: no kernel
2 reshape 0 1 - - - 0 reshape - 1 0 space of one point
weighted sum: 20.0 us, 100 trials
"""


def test_tasks_are_shown_one_by_one(comparison):
    text = tasks_text(comparison)
    assert squeezed(text)[:8] == squeezed(TASKS)
    assert "\nweighted sum: unknown us, 100 trials\n" in text
    assert text.endswith(
        "Times are the best of the candidates, run alone, in us; their weighted sum is not the latency of the network. "
        "FLOP are TVM's estimate.\n"
    )


def test_coverage_has_one_line_a_task_and_the_same_data_in_json(comparison):
    rows = list(csv.DictReader(io.StringIO(coverage_csv(comparison))))
    assert [(row["variant"], row["index"]) for row in rows] == [
        (variant, index) for variant in ("nhwc", "nchw8c", "wrong", "untuned") for index in "012"
    ]
    conv, softmax = rows[:2]
    assert conv == {
        "variant": "nhwc",
        "index": "0",
        "name": "fused_conv2d_add",
        "ops": "2",
        "kind": "conv2d",
        "layout": "NHWC",
        "space": str(10**400),
        "flop": "20000.0",
        "trials": "90",
        "failed": "4",
        "best_us": "10.0",
        "weighted_us": "20.0",
        "share": "1.0",
        "gflops": "2.0",
        "untuned_because": "",
        "first_failure": "",
        "hit": "",
    }
    assert (softmax["best_us"], softmax["share"], softmax["gflops"]) == ("", "", "")
    assert softmax["first_failure"] == "the build failed: no kernel"
    data = json.loads(json_table(comparison))["coverage"]
    as_csv = [{name: "" if value is None else str(value) for name, value in record.items()} for record in data]
    assert as_csv == rows


def test_untuned_tasks_are_named_up_to_five(comparison):
    (softmax,) = (task for task in comparison.coverage["nhwc"] if task.name == "softmax")
    tasks = tuple(
        replace(softmax, name=f"softmax{number}", trials=0, failed=0, flop=None, untuned_because=NOT_REACHED)
        for number in range(7)
    )
    assert coverage_notes(replace(comparison, coverage={"nhwc": tasks})) == [
        "nhwc: 7 tasks, 0 tuned, 7 without a trial; 0 trials, 0 failed",
        "nhwc, softmax0, softmax1, softmax2, softmax3, softmax4 and 2 more: no trial reached it within the budget",
    ]


def with_state(tmp_path, measure: dict, samples: dict) -> Comparison:
    """The comparison of three rounds on a phone; `samples` has what is special in (row, round)."""
    three = SPEC.measure.model_copy(update={"rounds": 3, **measure})
    with Store(tmp_path / "runs") as store:
        record(store, SPEC.model_copy(update={"measure": three}))
        for event in store.events:
            if event["kind"] == "samples":
                event |= {"cores": [4, 5, 6, 7], "disturbed": [], "conditions": [phone(34.0, 0), phone(41.6, 0)]}
                event |= samples.get((event["row"], event["round"]), {})
        return compare(store)


def phone(temperature_c: float, thermal_status: int, limit_khz: int = 2_803_200) -> dict:
    little = {"governor": "powersave", "frequency_khz": 600_000, "max_khz": 1_766_400, "limit_khz": 1_000_000}
    big = {"governor": "schedutil", "frequency_khz": limit_khz, "max_khz": 2_803_200, "limit_khz": limit_khz}
    return {
        "load_1min": 1.5,
        "governor": "schedutil",
        "frequency_khz": limit_khz,
        "cores": [{"core": number, "online": True, **(little if number < 4 else big)} for number in range(8)],
        "temperatures_c": [["battery", 60.0], ["cpu-1-0-usr", temperature_c]],
        "thermal_status": thermal_status,
        "battery": {"level_percent": 80, "charging": True},
    }


def test_rows_say_how_their_rounds_were_taken(tmp_path):
    hot = {"conditions": [phone(41.0, 0), phone(48.2, 2, 1_900_000)], "disturbed": ["thermal status 2 (moderate)"]}
    comparison = with_state(tmp_path, {}, {("nhwc", 1): hot, ("nhwc", 2): hot})
    rows = {row.name: row for row in comparison.rows}
    assert rows["nhwc"].flags == ("1 ops untuned", "disturbed 2 of 3 rounds")
    assert rows["nchw8c"].flags == ("1 ops untuned",)
    lines = terminal_table(comparison).splitlines()
    assert lines[-4:-1] == [
        "each round: 1 thread, pinned to cores 4-7, no cool-down, 500 ms of warm-up",
        "nhwc was disturbed: round 2: thermal status 2 (moderate); round 3: thermal status 2 (moderate)",
        "disturbed in more rounds than the statistics can leave out, so without a verdict: nhwc. "
        "`layoutlab run --again` takes all rounds anew: give it a machine that does nothing else",
    ]
    assert {name: row.ratio.verdict for name, row in rows.items() if row.ratio}["nhwc"] == "unstable"
    first = comparison.pairs[0]
    assert (first.variant, first.other, first.ratio.verdict) == ("nhwc", "nchw8c", "unstable")
    assert (
        "- conditions: load up to 1.5, governor schedutil, frequency 1900000 to 2803200 kHz, cores 4-7 capped at 1900000 "
        "of 2803200 kHz, CPU temperature 34 to 48 °C, thermal status up to 2 (moderate), battery 80 % and charging"
    ) in markdown_table(comparison).splitlines()
    row = next(csv.DictReader(io.StringIO(csv_table(comparison))))
    names = (
        "threads",
        "cores",
        "warmup_ms",
        "cooldown_ms",
        "cooldown_until_c",
        "rounds",
        "repeats",
        "rounds_disturbed",
    )
    assert [row[name] for name in names] == ["1", "4-7", "500", "0", "", "3", "2", "2"]
    rounds = json.loads(json_table(comparison))["rows"][0]["rounds"]
    assert (rounds["cores"], list(rounds["disturbed"])) == ([4, 5, 6, 7], ["2", "3"])


def test_a_cool_down_is_told_with_what_it_came_to(tmp_path):
    cooled = {"waited_s": 300.0, "until_c": 40, "hottest_c": 42.0, "reached": False}
    measure = {"cooldown_ms": 2000, "cooldown_until_c": 40.0}
    lines = terminal_table(with_state(tmp_path, measure, {("nhwc", 1): {"cooldown": cooled}})).splitlines()
    assert lines[-3:-1] == [
        "each round: 1 thread, pinned to cores 4-7, cool-down of 2000 ms and until 40 °C, 500 ms of warm-up",
        "cool-down: waited up to 300 s, 1 of 12 rounds still above 40 °C",
    ]
    unknown = {"waited_s": 2.0, "until_c": 40, "hottest_c": None, "reached": None}
    again = with_state(tmp_path / "again", measure, {("nhwc", 1): {"cooldown": unknown}})
    assert terminal_table(again).splitlines()[-2] == "no CPU temperature was readable, so the cool-down waited for none"


def test_pairs_have_a_line_each_with_full_numbers(comparison):
    rows = list(csv.DictReader(io.StringIO(pairs_csv(comparison.pairs))))
    assert [(row["variant"], row["other"], row["verdict"]) for row in rows] == [
        ("nhwc", "nchw8c", "slower"),
        ("nhwc", "untuned", "faster"),
        ("nchw8c", "untuned", "faster"),
    ]
    assert float(rows[0]["ratio"]) == pytest.approx(2.0, abs=1e-3)
    assert json.loads(json_table(comparison))["pairs"][0]["ratio"]["verdict"] == "slower"


def test_a_round_of_a_row_that_was_repeated_counts_once_with_its_last_samples(tmp_path):
    with Store(tmp_path / "runs") as store:
        record(store)
        again = {
            "samples_ms": [9.0, 9.0],
            "conditions": [STATE, STATE],
            "disturbed": ["other processes used 1.00 cores"],
        }
        store.append("samples", protocol="p", round=2, row="nhwc", **again)
        found = compare(store)
    assert found.samples_ms["nhwc"][2] == [9.0, 9.0]
    row = found.rows[0]
    assert (row.rounds.rounds, row.flags[-1]) == (6, "disturbed 1 of 6 rounds")
    # One round of six is left out at each end, so that the verdict stands.
    assert row.ratio.verdict == "slower"


def test_columns_that_do_not_fit_a_terminal_are_left_out_and_named(comparison):
    whole = terminal_table(comparison).splitlines()
    width = max(map(len, whole[2:9]))
    assert terminal_table(comparison, width).splitlines() == whole
    narrow = terminal_table(comparison, width - 1).splitlines()
    assert "trials" in whole[2] and "trials" not in narrow[2]
    assert narrow[3 + 1 + len(comparison.rows)] == f"left out to fit {width - 1} characters: trials (all in table.md)"
    phone = terminal_table(comparison, 72).splitlines()
    assert max(map(len, phone[2 : 4 + len(comparison.rows)])) <= 72
    assert all(name in phone[2] for name in ("variant", "ms (MAD)", "x TFLite [95 %]", "verdict"))
