"""A whole experiment on the simulated core: real qemu, real TVM, real LiteRT, tuned, checked and counted."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from layoutlab.device.kryo.toolchain import Toolchain

from .conftest import TINY
from .device.kryo.conftest import toolchain

__all__ = ["toolchain"]

SPEC = """\
name: x
model: {file: model.tflite}
target: llvm -device=arm_cpu -mtriple=aarch64-linux-gnu -mcpu=kryo -mattr=+neon -num-cores=1
variants:
  - {name: nchw4c, convert_layout: NCHW, alter_op_layout: {hook: nchwc, block: 4}}
  - {name: untuned, alter_op_layout: keep, tune: false}
tuning: {trials: 20, batch: 8, population: 16}
"""


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "layoutlab", *command], cwd=folder, capture_output=True, text=True, timeout=600
    )


def prepare(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "x.yaml").write_text(SPEC)
    shutil.copy(TINY / "tiny_mobilenet.tflite", folder / "model.tflite")
    return folder


def read(folder: Path, name: str) -> list[dict[str, str]]:
    with open(folder / "results" / "x" / name, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def done(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished run's folder and what it printed."""
    folder = prepare(tmp_path_factory.mktemp("kryo") / "here")
    finished = run(folder, "run", "x.yaml")
    assert finished.returncode == 0, finished.stderr
    assert "Traceback" not in finished.stderr
    return folder, finished.stdout


def test_the_table_says_simulated_in_every_row(done):
    _, text = done
    lines = text.splitlines()
    assert lines[2].split("  ") != lines[3].split("  ")
    header = [cell.strip() for cell in lines[2].split("  ") if cell.strip()]
    assert header == [
        "variant",
        "conv layouts",
        "simulated ms",
        "kcycles",
        "compute",
        "memory",
        "x TFLite",
        "verdict",
        "vs untuned",
        "transforms",
        "tuned",
        "trials",
        "outputs",
        "flags",
    ]
    rows = lines[4:7]
    assert [row.split()[0] for row in rows] == ["nchw4c", "untuned", "tflite"]
    assert all("simulated" in row for row in rows)
    assert lines[8].split() == ["variant", "takes", "x", "of", "verdict"]
    assert lines[12] == "nchw4c: 16 tasks, 14 tuned (100.0 % of the FLOP), 2 of one point; 20 trials, 0 failed"
    notes = lines[15:]
    assert notes[0].startswith(
        "device: no phone or board is named, so it runs on the simulated Kryo 280 gold core at 2.45 GHz (qemu-user "
    )
    assert notes[0].endswith("): its figures are simulated")
    assert notes[1] == "baseline: LiteRT 1.4.0, 1 thread, XNNPACK on"
    assert notes[2].startswith("simulated, not measured: ")
    assert notes[3].endswith("they are never to be ranked with measured ones")


def test_figures_add_up(done):
    folder, _ = done
    for row in read(folder, "table.csv"):
        assert row["median_ms"] == "" and row["rounds"] == ""
        kcycles, compute, memory = (float(row[name]) for name in ("kcycles", "compute_kcycles", "memory_kcycles"))
        assert kcycles == pytest.approx(compute + memory)
        assert float(row["simulated_ms"]) == pytest.approx(kcycles / 2450)
        assert memory == pytest.approx(0.035 * float(row["l1_nonsequential"]))
        assert row["outputs_ok"] == ("" if row["variant"] == "tflite" else "True")
        functions = [found for found in read(folder, "functions.csv") if found["variant"] == row["variant"]]
        for name in ("kcycles", "instructions", "accesses", "l1_misses", "l2_misses"):
            assert sum(float(found[name]) for found in functions) == pytest.approx(float(row[name]), rel=1e-9)


def test_functions_come_in_the_order_of_the_table_most_cycles_first(done):
    folder, _ = done
    found = read(folder, "functions.csv")
    assert list(dict.fromkeys(row["variant"] for row in found)) == ["nchw4c", "untuned", "tflite"]
    for variant in ("nchw4c", "untuned", "tflite"):
        costs = [float(row["kcycles"]) for row in found if row["variant"] == variant]
        assert costs == sorted(costs, reverse=True)


def test_functions_have_the_names_that_tvm_gave_them(done):
    folder, _ = done
    names = [found["function"] for found in read(folder, "functions.csv") if found["variant"] == "untuned"]
    assert sum(name.startswith("fused_conv2d") for name in names) == 12
    assert not any(name.startswith("__tvm_ffi_") or name.endswith("_compute_") for name in names)
    assert "[libtvm_runtime.so]" in names
    # The network's own functions take nearly all of an untuned build.
    own = sum(
        float(f["share"])
        for f in read(folder, "functions.csv")
        if f["variant"] == "untuned" and "[" not in f["function"]
    )
    assert own > 0.8


def test_a_second_run_counts_nothing_and_prints_the_same(done):
    folder, text = done
    again = run(folder, "run", "x.yaml")
    assert again.stdout == text
    events = [json.loads(line) for line in (folder / "results/runs/x/events.jsonl").read_text().splitlines()]
    kinds = [event["kind"] for event in events]
    assert (kinds.count("built"), kinds.count("samples")) == (2, 3)
    assert [event["rounds"] for event in events if event["kind"] == "run"] == [1, 1]


@pytest.mark.slow
def test_a_new_run_elsewhere_comes_to_the_same_figures(done, tmp_path):
    """Tuning included; that counts repeat in any process is in device/kryo/test_core.py as well, and not slow."""
    folder, text = done
    other = prepare(tmp_path / "a longer path than the other one has")
    assert run(other, "run", "x.yaml").stdout == text
    assert read(other, "functions.csv") == read(folder, "functions.csv")


def test_another_price_needs_no_new_run(done, tmp_path):
    """`report` computes cycles from the counts that were kept."""
    folder, _ = done
    program = (
        "import sys, layoutlab.device.kryo.cycles as cycles; cycles.PENALTY = 70.0; "
        "from layoutlab.cli import main; sys.exit(main(['report', 'x.yaml', '--json', '--results', sys.argv[1]]))"
    )
    shutil.copytree(folder / "results", tmp_path / "results")
    priced = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "results")],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert priced.returncode == 0, priced.stderr
    before = {row["variant"]: row for row in read(folder, "table.csv")}
    for row in json.loads(priced.stdout)["rows"]:
        cost, old = row["simulated"], before[row["name"]]
        assert cost["memory_kcycles"] == pytest.approx(2 * float(old["memory_kcycles"]))
        assert cost["compute_kcycles"] == pytest.approx(float(old["compute_kcycles"]))


def test_the_profile_of_a_simulated_run(done):
    """Functions and remainder sum exactly to the row of the table; every original operator has its place."""
    folder, _ = done
    finished = run(folder, "profile", "x.yaml", "--json")
    assert finished.returncode == 0, finished.stderr
    profiles = json.loads(finished.stdout)
    table = {
        row["variant"]: float(row["simulated_ms"]) for row in read(folder, "table.csv") if row["variant"] != "tflite"
    }
    assert {name: profile["end_to_end_ms"] for name, profile in profiles.items()} == pytest.approx(table, rel=1e-4)
    for profile in profiles.values():
        assert profile["simulated"]
        rows = profile["rows"]
        assert sum(row["time_ms"] for row in rows) + profile["remainder_ms"] == pytest.approx(profile["end_to_end_ms"])
        assert 0 < profile["remainder_ms"] < profile["end_to_end_ms"] / 2
        assert sum(row["calls"] for row in rows) == len({node for row in rows for node in row["nodes"]})
        assert all((op["node"] is None) == (op["removed"] is not None) for op in profile["operators"])
    tuned = [row for row in profiles["nchw4c"]["rows"] if row["best_us"] is not None]
    assert len(tuned) > 5 and all(row["ratio"] > 0 for row in tuned)


@pytest.mark.slow
def test_experiments_on_the_simulated_core(done):
    """What is counted again is counted as it was: a record promises exactly what it keeps."""
    folder, _ = done
    finished = run(folder, "profile", "x.yaml", "--explain", "--variant", "nchw4c", "--top", "3", "--json")
    assert finished.returncode == 0, finished.stderr
    rows = [row for row in json.loads(finished.stdout)["nchw4c"]["rows"] if row["best_us"] is not None]
    assert rows
    for row in rows:
        assert row["again_us"] == pytest.approx(row["best_us"])
        assert row["cold_us"] > 0 and row["warm_us"] is None
