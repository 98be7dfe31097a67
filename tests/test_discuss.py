# ruff: noqa: E501 - messages are shown as they are
"""`layoutlab discuss` on tables of real runs, and on copies with profiles and flags."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from layoutlab.cli import main

from .conftest import TABLES

HOST = TABLES / "mobilenetv3_layouts_host"


@pytest.fixture
def discuss(capsys) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = main(["discuss", *map(str, arguments), "--results", str(TABLES)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def copied(tmp_path) -> Callable[[Callable[[dict], None]], Path]:
    def copy(change: Callable[[dict], None]) -> Path:
        data = json.loads((HOST / "table.json").read_text())
        change(data)
        (tmp_path / "table.json").write_text(json.dumps(data))
        return tmp_path

    return copy


def section(post: str, name: str) -> str:
    return post.split(f"## {name}\n\n")[1].split("\n\n## ")[0].strip()


def profile(folder: Path, variant: str, end_to_end_ms: float, rows: list[tuple[list[str], float]]) -> None:
    operators = [{"index": 0, "flop": 100}, {"index": 1, "flop": 5}, {"index": 2, "flop": 300}]
    made = [{"ops": ops, "parts": [], "time_ms": ms} for ops, ms in rows]
    data = {"format": 1, "end_to_end_ms": end_to_end_ms, "operators": operators, "rows": made}
    (folder / f"profile.{variant}.json").write_text(json.dumps(data))


def test_a_post_has_every_part_and_an_answer(discuss):
    code, post, _ = discuss(HOST)
    assert code == 0
    heads = [line for line in post.splitlines() if line.startswith("#")]
    assert heads == [
        "# Data layouts of mobilenet_v3_large_minimalistic_224.tflite on Intel(R) Xeon(R) Processor",
        *(f"## {name}" for name in ("Question", "Answer", "Setup", "Results", "Why", "Caveats", "How to reproduce")),
    ]
    answer = section(post, "Answer")
    assert answer.startswith("The fastest tuned variant is **nhwc**, faster than TFLite (0.85 [")
    assert answer.endswith(" times its latency). No difference was shown between it and nchwc.")
    assert section(post, "Why") == (
        "There are no profiles of two tuned variants: run `layoutlab profile mobilenetv3_layouts_host.yaml` to see where "
        "the time goes."
    )
    assert "layoutlab run mobilenetv3_layouts_host.yaml" in section(post, "How to reproduce").splitlines()


def test_several_specs_make_one_post_that_says_it_is_simulated(discuss):
    post = discuss("mobilenetv3_nhwc", "mobilenetv3_nchw")[1]
    assert section(post, "Caveats").splitlines() == [
        "- All figures are simulated, not measured: counted under qemu and priced by a model of the core. They show what "
        "differs between layouts, and do not replace a device.",
        "- One model, on one device, with one number of threads: others may order the layouts otherwise.",
    ]
    assert "layoutlab compare mobilenetv3_nhwc mobilenetv3_nchw" in section(post, "How to reproduce").splitlines()


def test_caveats_are_made_of_the_flags(discuss, copied):
    def change(data: dict) -> None:
        nhwc, nchw, nchwc, _, tflite = data["rows"]
        nhwc["flags"] = ["3 ops untuned", "borrowed (2)", "stopped by time limit"]
        nchw["flags"] = ["unstable", "disturbed 4 of 9 rounds"]
        nchw["ratio"]["verdict"] = "unstable"
        nchwc.update(failure={"stage": "build", "cause": "LLVM gave up", "log": "", "exit_code": 1}, latency=None)
        nchwc.update(ratio=None, flags=[])
        tflite["flags"] = ["a flag of tomorrow"]
        data["measure"]["rounds"] = 3
        lent = {"ops": 2, "source": "records/other", "differences": []}
        data["records"] = {"nhwc": {"borrowed": [lent]}}

    assert section(discuss(copied(change))[1], "Caveats").splitlines() == [
        "- `nchwc` has no figure: build: LLVM gave up.",
        "- `nhwc`: 3 of its ops have no tuning record and run as naive loops.",
        "- `nhwc`: 2 of its ops run with tuning records of another device, model or version.",
        "- `nhwc`: its tuning ended before the budget was spent (time limit).",
        "- `nchw`: its rounds differ too much for the median to mean a latency.",
        "- `nchw`: 4 of its 9 rounds were disturbed by heat or by other programs.",
        "- `nhwc_untuned`: was not tuned: it shows what tuning is worth, and nothing about its layout.",
        "- `tflite`: a flag of tomorrow.",
        "- No verdict on `nchw`: too much else happened while it was measured.",
        "- Only 3 rounds: for trying out, not for publication.",
        "- Records of `nhwc` for 2 ops come from records/other.",
        "- One model, on one device, with one number of threads: others may order the layouts otherwise.",
    ]


WHY = """\
**nchw** against **nhwc**: +400.0 us end to end in their profiles. The operators that differ most, with what is fused to them, \
sum to +395.0 us:

| operator | us in nhwc | us in nchw | difference |
| 2 CONV_2D 1x1 | 200.0 | 500.0 | +300.0 |
| layout transforms and what computes no operator | 0.0 | 100.0 | +100.0 |
| 0 CONV_2D 3x3 | 100.0 | 95.0 | -5.0 |

Note: the profile of nchw is of another time: 4.000 ms end to end, and 7.679 ms in the table."""


def test_profiles_say_which_operators_make_the_difference(discuss, copied):
    folder = copied(lambda data: None)
    fused = ["0 CONV_2D 3x3", "1 ADD"]
    profile(folder, "nhwc", 3.6, [(fused, 0.1), (["2 CONV_2D 1x1"], 0.2)])
    profile(folder, "nchw", 4.0, [(fused, 0.095), (["2 CONV_2D 1x1"], 0.25), (["2 CONV_2D 1x1"], 0.25), ([], 0.1)])
    lines = section(discuss(folder)[1], "Why").splitlines()
    assert [" ".join(line.split()) for line in lines if not line.startswith("|-")] == WHY.splitlines()


def test_what_makes_no_post_is_said(discuss, copied):
    code, _, error = discuss("quick", "quick")
    assert (code, error) == (
        2,
        "error: a post is about different specs, each once: layoutlab compare shows two runs of one\n",
    )
    assert "error: these results cannot stand in one table:" in discuss("quick", HOST)[2]
    folder = copied(lambda data: None)
    profile(folder, "nhwc", 3.6, [])
    (folder / "profile.nchw.json").write_text("{")
    code, _, error = discuss(folder)
    assert code == 2
    assert error.startswith(f"error: {folder / 'profile.nchw.json'} cannot be read (")
    assert error.endswith("): layoutlab profile mobilenetv3_layouts_host writes it anew\n")
