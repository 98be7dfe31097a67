"""`layoutlab triage` as users meet it: whole outputs for logs of every form, whatever was done to their text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutlab.cli import main
from layoutlab.spec.load import load_spec
from layoutlab.triage.read import FORMS, read_log
from layoutlab.triage.report import triage_json, triage_text

LOGS = Path(__file__).parent / "logs"
NAMES = sorted(path.stem for path in LOGS.glob("*.txt"))


def text_of(data: bytes) -> str:
    return triage_text("x", read_log(data))


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_output(name, capsys):
    """What is expected stands beside each log; `layoutlab triage NAME.txt` in their folder makes it."""
    assert main(["triage", str(LOGS / f"{name}.txt")]) == 0
    shown = capsys.readouterr()
    assert shown.out.replace(f"{LOGS}/", "") == (LOGS / f"{name}.expected").read_text()
    assert shown.err == ""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "mangle",
    [
        lambda text: text.encode("utf-16"),
        lambda text: text.encode("utf-16-le"),
        lambda text: text.encode("utf-16-be"),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: "\n".join(f"\x1b[33m{line}\x1b[0m" for line in text.split("\n")).encode(),
        lambda text: "\n".join(f"> {line}" for line in text.split("\n")).encode(),
        lambda text: text.replace("'", "\u2019").replace('"', "\u201d").encode(),
        lambda text: text.replace("'", "&#39;").replace('"', "&quot;").encode(),
        lambda text: text.replace(" ", "\u00a0").encode(),
        lambda text: ("Gr\xfc\xdfe\n" + text).encode("cp1252"),
    ],
    ids=[
        "utf-16",
        "utf-16-le",
        "utf-16-be",
        "bom",
        "crlf",
        "colours",
        "quoted",
        "quotes",
        "entities",
        "nbsp",
        "cp1252",
    ],
)
def test_what_is_done_to_a_log_changes_nothing(name, mangle):
    text = (LOGS / f"{name}.txt").read_bytes().decode()
    plain, mangled = read_log(text.encode()), read_log(mangle(text))
    assert (mangled.untuned, mangled.tuning, mangled.functions, mangled.relay) == (
        plain.untuned,
        plain.tuning,
        plain.functions,
        plain.relay,
    )


def test_several_forms_in_one_log_give_all_their_parts():
    text = text_of(b"\n".join((LOGS / f"{name}.txt").read_bytes() for name in ("fallback", "progress", "table")))
    headings = [line for line in text.splitlines() if line[:1].isupper()]
    assert headings == [
        "Untuned: 3 workloads in 4 warnings",
        "Target",
        "Tuning: 5 tasks, 713 trials in 1054 s, best 12.50 GFLOPS",
        "Time by function: 6 rows, 10000 us in all",
        "Layouts in Relay",
        "What to try next",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_the_spec_that_is_suggested_is_valid(name, tmp_path):
    steps = json.loads(triage_json("x", read_log((LOGS / f"{name}.txt").read_bytes())))["next"]
    path = tmp_path / "my_layouts.yaml"
    path.write_text(steps[0]["file"])
    assert [variant.name for variant in load_spec(path).spec.variants][:2] == ["nhwc", "nchw"]


def test_the_target_of_the_log_goes_into_the_spec():
    spec = yaml.safe_load(
        json.loads(triage_json("x", read_log((LOGS / "fallback.txt").read_bytes())))["next"][0]["file"]
    )
    assert spec["target"] == (
        "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon -num-cores=1"
    )


def test_every_command_that_is_suggested_is_one(capsys):
    commands = {
        step["command"]
        for name in NAMES
        for step in json.loads(triage_json("x", read_log((LOGS / f"{name}.txt").read_bytes())))["next"]
    }
    assert len(commands) == 7
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            main([*command.replace("--op N", "--op 1").split()[1:], "--help"])
        assert ended.value.code == 0
    capsys.readouterr()


def test_json_has_everything_that_was_read(capsys):
    assert main(["triage", str(LOGS / "progress.txt"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    tasks = {task["number"]: task for task in found["tuning"]["sessions"][0]["tasks"]}
    assert tasks[3] == {
        "number": 3,
        "tried": 72,
        "trials": 72,
        "best_gflops": 0.0,
        "seconds": 800.25,
        "done": True,
    }
    assert (tasks[1]["best_gflops"], tasks[5]["done"]) == (12.5, False)
    assert found["tuning"]["errors"] == {"RUN_TIMEOUT": 1, "INSTANTIATION_ERROR": 1}
    assert found["findings"]["tuning"][0].startswith("One candidate: 1 of 5 tasks (task 2).")


def test_from_standard_input():
    done = subprocess.run(
        [sys.executable, "-m", "layoutlab", "triage", "-"],
        input=(LOGS / "fallback.txt").read_bytes(),
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    expected = (LOGS / "fallback.expected").read_text()
    assert done.stdout.decode() == expected.replace("fallback.txt:", "standard input:")


@pytest.mark.parametrize("data", [b"", b"hello\nworld\n", bytes(range(256)), b"\xff\xfe", b"[Task  1/36]  Current/Be"])
def test_nothing_known_says_what_is_known(tmp_path, capsys, data):
    path = tmp_path / "x.log"
    path.write_bytes(data)
    assert main(["triage", str(path)]) == 2
    shown = capsys.readouterr()
    forms = "".join(f"  {form}\n" for form in FORMS)
    lines = read_log(data).lines
    assert shown.err == (f"error: {path}: nothing that layoutlab knows in {lines} lines with text. It reads:\n{forms}")
    assert shown.out == ""


def test_a_log_that_is_not_there(tmp_path, capsys):
    assert main(["triage", str(tmp_path / "x.log")]) == 2
    assert main(["triage", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"error: cannot read the log {tmp_path / 'x.log'}: No such file or directory\n"
        f"error: cannot read the log {tmp_path}: Is a directory\n"
    )


PIECES = sorted({line for name in NAMES for line in (LOGS / f"{name}.txt").read_bytes().decode().splitlines() if line})


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    pieces=st.lists(
        st.one_of(
            st.sampled_from(PIECES).flatmap(lambda line: st.integers(0, len(line)).map(lambda end: line[:end])),
            st.sampled_from(PIECES).flatmap(lambda line: st.integers(0, len(line)).map(lambda begin: line[begin:])),
            st.text(max_size=40),
            st.sampled_from(["\r", "(" * 300, "9" * 5000, "\x1b[", "((1,2),", "workload=(" * 30]),
        ),
        max_size=12,
    ),
    between=st.sampled_from(["\n", "", "\r", " "]),
)
def test_cut_and_mixed_text_is_read_without_an_error(pieces, between):
    log = read_log(between.join(pieces).encode("utf-8", "surrogatepass"))
    assert triage_text("x", log).startswith("x: ")
    json.loads(triage_json("x", log))
