"""The tuning benchmark: its figures and texts, and that stock MetaSchedule is left as it is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.plan import OURS, STOCK, Plan, Task, choose
from benchmarks.summary import Ending, Measured, tables, total
from benchmarks.tuning import find_failures

from .conftest import ROOT, TINY

TASKS = (Task(name="conv2d", ops=2, flop=1e6), Task(name="conv2d1", ops=1, flop=1.5e6))
MACHINE = {"CPU": "a CPU", "system": "a system"}


def row(tuner: str, task: str, valid: int, failed: int, best_us: float | None) -> Measured:
    return Measured(tuner=tuner, task=task, valid=valid, failed=failed, recorded_us=best_us, best_us=best_us)


MEASURED = (
    row(OURS, "conv2d", 30, 2, 100.0),
    row(OURS, "conv2d1", 31, 1, 50.0),
    row(STOCK, "conv2d", 20, 12, 80.0),
    row(STOCK, "conv2d1", 0, 32, None),
)
FAILURES = {OURS: {}, STOCK: {"LocalBuilder: Timeout, killed after 30.0 seconds": 44}}
ENDINGS = {OURS: Ending(seconds=61.0), STOCK: Ending(seconds=600.0)}


def test_totals_are_sums_and_costs_only_those_that_both_have():
    ours, stock = (total(tuner, TASKS, MEASURED, ENDINGS[tuner]) for tuner in (OURS, STOCK))
    assert (ours.tuned, ours.valid, ours.failed, ours.seconds, ours.per_minute) == (2, 61, 3, 61.0, 60.0)
    assert (stock.tuned, stock.valid, stock.failed, stock.per_minute) == (1, 20, 44, 2.0)
    assert (ours.sum_us, stock.sum_us) == (200.0, 160.0)


def test_the_tables():
    assert tables(TASKS, MEASURED, ENDINGS, FAILURES, MACHINE).splitlines() == [
        "|                          |   layoutlab |   stock MetaSchedule |   layoutlab / stock |",
        "|--------------------------|-------------|----------------------|---------------------|",
        "| tasks tuned              |      2 of 2 |               1 of 2 |                   - |",
        "| valid trials             |          61 |                   20 |                3.05 |",
        "| failed trials            |           3 |                   44 |                0.07 |",
        "| seconds                  |          61 |                  600 |                0.10 |",
        "| valid trials per minute  |        60.0 |                  2.0 |               30.00 |",
        "| best costs of 1 task, us |       200.0 |                160.0 |                1.25 |",
        "",
        "| task    |   ops |   layoutlab us |   stock us |   layoutlab / stock |",
        "|---------|-------|----------------|------------|---------------------|",
        "| conv2d  |     2 |          100.0 |       80.0 |                1.25 |",
        "| conv2d1 |     1 |           50.0 |          - |                   - |",
        "",
        "stock: 44 failed with: LocalBuilder: Timeout, killed after 30.0 seconds",
        "seconds are those of the tuner's whole process; stock has its default settings (64 trials an iteration), and "
        "writes its records only when an iteration ends",
        "best costs are times of one call, each tuner's best candidates built again and measured in turns in one "
        "process, times the ops that a task serves",
        "CPU: a CPU",
        "system: a system",
    ]


def test_a_tuner_that_found_nothing_is_shown_with_its_reason():
    nothing = [row(OURS, "conv2d", 3, 0, 9.0), row(STOCK, "conv2d", 0, 0, None)]
    endings = {
        OURS: Ending(seconds=60.0),
        STOCK: Ending(seconds=9.0, problem="exit code 1; it said last: TimeoutError"),
    }
    shown = tables(TASKS[:1], nothing, endings, {}, MACHINE)
    assert "stock did not finish: exit code 1; it said last: TimeoutError" in shown.splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines() if line.startswith("|")]
    assert ["tasks tuned", "1 of 1", "0 of 1", "-"] in cells
    assert ["valid trials per minute", "3.0", "0.0", "-"] in cells
    assert ["best costs of 0 tasks, us", "-", "-", "-"] in cells
    assert ["conv2d", "2", "9.0", "-", "-"] in cells


def test_reasons_of_failed_trials_come_from_the_logs(tmp_path):
    logs = tmp_path / STOCK / "logs"
    logs.mkdir(parents=True)
    (tmp_path / "tune_ours.log").write_text(
        "a warning\ntask conv2d: the build took longer than 30 s\ntask conv2d1: the build took longer than 30 s\n"
    )
    head = "2026-01-01 10:00:00 [INFO] [task_scheduler.cc:132] [Task #0: conv2d] Trial #"
    late = "LocalBuilder: Timeout, killed after 30.0 seconds"
    (logs / "task_0.log").write_text(
        f"{head}1: Error in building:\n{late}\n# from tvm\n{head}2: Error in building:\n{late}\n# from tvm\n"
        f"{head}3: GFLOPs: 1.0. Time: 2 us\n{head}4: Error in running:\nLocalRunner: An exception occurred\n"
    )
    assert find_failures(tmp_path) == {
        OURS: {"the build took longer than 30 s": 2},
        STOCK: {late: 2, "LocalRunner: An exception occurred": 1},
    }


def test_tasks_are_chosen_by_their_work_in_the_network_or_by_name():
    assert [task.name for task in choose(TASKS[::-1], "1")] == ["conv2d"]
    assert [task.name for task in choose(TASKS, "9")] == ["conv2d", "conv2d1"]
    assert [task.name for task in choose(TASKS, "conv2d1")] == ["conv2d1"]
    with pytest.raises(SystemExit) as caught:
        choose(TASKS, "conv2d,dense")
    assert caught.value.code == "the model has no task dense; it has conv2d, conv2d1"


def test_a_plan_comes_back_from_its_file(tmp_path):
    plan = Plan(model="m.tflite", target={"kind": "llvm", "mattr": ["+x"]}, tasks=TASKS, trials=8, seed=3)
    plan.write(tmp_path)
    assert Plan.read(tmp_path) == plan


def test_the_stock_tuner_imports_nothing_of_layoutlab():
    """layoutlab replaces TVM's GPU intrinsics by empty modules; stock with them would not be stock."""
    code = "import sys, benchmarks.tune_stock; print([name for name in sys.modules if name.startswith('layoutlab')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.slow
def test_a_small_benchmark_through_the_command_line(tmp_path):
    command = [
        sys.executable,
        "-m",
        "benchmarks.tuning",
        "--trials",
        "4",
        "--tasks",
        "1",
        "--json",
        tmp_path / "b.json",
    ]
    model = ["--model", TINY / "tiny_conv.tflite"]
    done = subprocess.run([*command, *model], cwd=ROOT, capture_output=True, text=True, timeout=1200)
    found = json.loads((tmp_path / "b.json").read_text())
    # Stock may fail on a slow machine; that is told, and is no error of the benchmark.
    assert done.returncode == bool(found["problems"]), done.stderr
    assert OURS not in found["problems"]
    assert found["totals"][OURS]["valid"] + found["totals"][OURS]["failed"] == 4
    assert [(task["tuner"], task["task"]) for task in found["tasks"]] == [
        (tuner, found["plan"]["tasks"][0]["name"]) for tuner in (OURS, STOCK)
    ]
    assert found["tasks"][0]["best_us"] > 0
    assert done.stdout.splitlines()[0].split("|")[2:4] == ["   layoutlab ", "   stock MetaSchedule "]
