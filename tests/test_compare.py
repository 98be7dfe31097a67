# ruff: noqa: E501 - messages are shown as they are
"""`layoutlab compare` on tables of real runs, and on copies of them that something was changed in."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from layoutlab.cli import main

from .conftest import TABLES

HOST = TABLES / "mobilenetv3_layouts_host"


@pytest.fixture
def compare(capsys) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = main(["compare", *map(str, arguments), "--results", str(TABLES)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def changed(folder: Path, change: Callable[[dict], None], of: Path = HOST) -> Path:
    data = json.loads((of / "table.json").read_text())
    change(data)
    folder.mkdir()
    (folder / "table.json").write_text(json.dumps(data))
    return folder


def scaled(row: str, factor: float) -> Callable[[dict], None]:
    def change(data: dict) -> None:
        data["samples_ms"][row] = [[ms * factor for ms in samples] for samples in data["samples_ms"][row]]

    return change


def renamed(name: str) -> Callable[[dict], None]:
    return lambda data: data.update(name=name)


def test_three_specs_of_one_layout_each_make_one_table(compare):
    code, text, _ = compare("mobilenetv3_nhwc", "mobilenetv3_nchw.yaml", TABLES / "mobilenetv3_nchwc", "--csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["variant"], row["spec"]) for row in rows] == [
        ("nhwc", "mobilenetv3_nhwc"),
        ("nchw", "mobilenetv3_nchw"),
        ("nchw4c", "mobilenetv3_nchwc"),
        ("tflite", "mobilenetv3_nhwc"),
    ]
    data = json.loads(compare("mobilenetv3_nhwc", "mobilenetv3_nchw", "--json")[1])
    (pair,) = data["pairs"]
    assert (pair["variant"], pair["other"]) == ("nhwc", "nchw")
    assert pair["ratio"]["value"] == pytest.approx(float(rows[0]["ms"]) / float(rows[1]["ms"]))


def test_markdown_has_both_tables(compare):
    text = compare("mobilenetv3_nhwc", "mobilenetv3_nchw", "--md")[1]
    heads = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")]
    assert heads[0] == "variant" and heads[2:5] == ["nhwc", "nchw", "tflite"]
    assert heads[5] == "variant" and heads[7:] == ["nhwc"]


def test_what_cannot_stand_in_one_table_is_refused_with_every_reason(compare, tmp_path):
    def change(data: dict) -> None:
        data.update(name="other")
        data["run"].update(device="Other CPU", threads=2, model_sha256="b" * 64)
        data["measure"]["repeats"] += 1

    code, text, error = compare(HOST, changed(tmp_path / "other", change))
    assert (code, text) == (2, "")
    lines = error.splitlines()
    assert lines[0] == "error: these results cannot stand in one table:"
    assert [line.split(" differs: ")[0].strip() for line in lines[1:]] == ["model", "device", "threads", "protocol"]
    assert lines[3] == "  threads differs: mobilenetv3_layouts_host has 1; other has 2"


def test_a_measured_and_a_simulated_run_never_share_a_table(compare):
    code, _, error = compare("mobilenetv3_nhwc", "mobilenetv3_layouts_host")
    assert code == 2
    assert "  device differs: mobilenetv3_nhwc has simulated Kryo" in error


def test_variants_of_the_same_name_are_told_apart_and_a_moved_baseline_leaves_no_verdict(compare, tmp_path):
    same = changed(tmp_path / "same", renamed("same"))
    data = json.loads(compare(HOST, same, "--json")[1])
    assert data["rows"][0]["variant"] == "mobilenetv3_layouts_host/nhwc"
    pair = next(pair for pair in data["pairs"] if pair["other"] == "same/nchw")
    assert (pair["variant"], pair["ratio"]["verdict"]) == ("mobilenetv3_layouts_host/nhwc", "faster")
    assert data["notes"] == []

    def change(data: dict) -> None:
        renamed("slow_day")(data)
        scaled("tflite", 1.3)(data)

    data = json.loads(compare(HOST, changed(tmp_path / "slow", change), "--json")[1])
    assert data["notes"] == [
        "TFLite took 1.30 times as long in slow_day as in mobilenetv3_layouts_host (slower), so that variants of the two "
        "get no verdict"
    ]
    across = [pair for pair in data["pairs"] if pair["variant"].split("/")[0] != pair["other"].split("/")[0]]
    assert across and {pair["ratio"]["verdict"] for pair in across} == {"unstable"}


def test_across_time_regressions_come_first(compare, tmp_path):
    def change(data: dict) -> None:
        scaled("nchw", 0.8)(data)
        scaled("nchwc", 1.2)(data)
        data["run"]["versions"]["apache-tvm"] = "0.26.0"
        data["rows"] = [row for row in data["rows"] if row["name"] != "nhwc_untuned"]

    then = changed(tmp_path / "then", change)
    code, text, _ = compare(then, HOST, "--csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["variant"], row["verdict"]) for row in rows] == [
        ("nchw", "slower"),
        ("nhwc", "no difference shown"),
        ("tflite", "no difference shown"),
        ("nchwc", "faster"),
        ("nhwc_untuned", "new"),
    ]
    assert float(rows[0]["ratio"]) == pytest.approx(1.25)
    assert float(rows[0]["ratio_low"]) < 1.25 < float(rows[0]["ratio_high"])
    said = compare(then, HOST)[1].splitlines()
    assert said[0] == f"mobilenetv3_layouts_host: from {then / 'table.json'} to {HOST / 'table.json'}"
    versions = f"apache-tvm differs: {then / 'table.json'} has 0.26.0; {HOST / 'table.json'} has 0.27.0.post1"
    assert said[-1] == versions


def test_a_baseline_that_moved_is_said(compare, tmp_path):
    then = changed(tmp_path / "then", scaled("tflite", 0.5))
    assert compare(then, HOST)[1].splitlines()[-1] == (
        "TFLite itself took 2.00 times as long (slower): what changed may be the machine or the baseline, so see the "
        "ratios to TFLite"
    )


def another_model(ratio: float) -> Callable[[dict], None]:
    def change(data: dict) -> None:
        data.update(name="small")
        data["run"].update(model="small.tflite", model_sha256="b" * 64)
        data["rows"] = [row for row in data["rows"] if row["name"] != "nhwc_untuned"]
        data["rows"][0]["ratio"]["value"] = ratio

    return change


def test_across_models_variants_have_a_geometric_mean(compare, tmp_path):
    nhwc = json.loads((HOST / "table.json").read_text())["rows"][0]["ratio"]["value"]
    small = changed(tmp_path / "small", another_model(ratio=4 * nhwc))
    code, text, _ = compare("--models", HOST, small, "--csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["variant"], row["model"]) for row in rows[:3]] == [
        ("nhwc", "mobilenetv3_layouts_host"),
        ("nhwc", "small"),
        ("nchw", "mobilenetv3_layouts_host"),
    ]
    assert float(rows[0]["geometric_mean"]) == float(rows[1]["geometric_mean"]) == pytest.approx(2 * nhwc)
    untuned = [row for row in rows if row["variant"] == "nhwc_untuned"]
    assert [(row["ratio_to_tflite"] != "", row["geometric_mean"]) for row in untuned] == [(True, ""), (False, "")]
    table = compare("--models", HOST, small)[1].splitlines()
    assert table[0].split("  ")[-1].strip() == "geometric mean" and table[2].endswith(f"{2 * nhwc:.2f}")
    assert table[-1] == "no mean of nhwc_untuned, for not every model has a ratio of it"


def test_only_results_of_different_models_have_a_mean(compare, tmp_path):
    same = changed(tmp_path / "same", renamed("same"))
    assert compare("--models", HOST, same)[2] == (
        f"error: {HOST / 'table.json'} and {same / 'table.json'} are of the same model: with --models each is of another\n"
    )

    def change(data: dict) -> None:
        another_model(1.0)(data)
        data["run"].update(threads=2)

    threads = changed(tmp_path / "threads", change)
    assert compare("--models", HOST, threads)[2].splitlines()[1:] == [
        "  threads differs: mobilenetv3_layouts_host has 1; small has 2"
    ]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["quick"], "compare needs at least two results"),
        (["quick", "absent"], "absent: no result at {results}/absent/table.json. Give a spec that was run, a folder with "
                              "a table.json, or such a file"),
        (["quick", "quick", "quick"], "quick is there more than once: compare different specs, or two results of one and "
                                      "the same"),
        (["quick", "{tmp}/a.json"], "{tmp}/a.json is no table of format 1: give the table.json that layoutlab run writes"),
    ],
)  # fmt: skip
def test_what_is_no_comparison_is_said(compare, tmp_path, arguments, error):
    (tmp_path / "a.json").write_text('{"format": 2, "rows": []}')
    code, _, said = compare(*(argument.format(tmp=tmp_path) for argument in arguments))
    assert (code, said) == (2, f"error: {error.format(results=TABLES, tmp=tmp_path)}\n")
