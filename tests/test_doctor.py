"""What `layoutlab doctor` says, on this machine and on one that lacks things."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from layoutlab.doctor import Finding, doctor_json, doctor_text, exit_code

DOCTOR = """\
import sys
from layoutlab.doctor import diagnose, doctor_text, exit_code
findings = diagnose()
print(doctor_text(findings), end="")
assert not {"tvm", "ai_edge_litert"} & set(sys.modules)
sys.exit(exit_code(findings))
"""


def doctor(cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", DOCTOR],
        env={**os.environ, "LAYOUTLAB_CACHE": str(cache), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_machine_that_can_do_everything(tmp_path):
    done = doctor(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[2:7]] == [
        "Python",
        "TVM",
        "LiteRT",
        "C linker",
        "simulated Kryo core",
    ]
    assert lines[6].endswith(
        "  later    not provisioned; the first experiment for it does it (330 MB of downloads, a minute)"
    )
    assert lines[7:] == ["", "experiments can run on this machine itself and the simulated Kryo core"]
    assert not any(tmp_path.iterdir())


def test_a_machine_without_debians_programs(tmp_path):
    done = doctor(tmp_path, PATH="/nowhere")
    assert (done.returncode, done.stderr) == (3, "")
    table, todo, last = done.stdout.split("\n\n")
    assert [line.split()[-3:] for line in table.splitlines()[5:]] == [
        ["gcc", "or", "clang"],
        ["on", "this", "machine"],
    ]
    assert todo == (
        "to do:\n"
        "  C linker: install gcc or clang (on Debian: apt-get install g++); "
        "TVM links with it what it compiles for this machine\n"
        "  simulated Kryo core: no apt-get, dpkg-deb, tar: "
        "qemu, LLVM and an aarch64 Python come from Debian's or Ubuntu's packages. "
        "Use Debian 12, Ubuntu 22.04 or 24.04, or a container of one"
    )
    assert last == "no experiment can run here\n"


def test_a_tvm_that_does_not_start(tmp_path):
    (tmp_path / "tvm.py").write_text("raise ImportError('libtvm is broken')\n")
    done = doctor(tmp_path / "cache", PYTHONPATH=str(tmp_path))
    assert done.returncode == 3
    assert "to do:\n  TVM: 0.27.0.post1 does not start: ImportError: libtvm is broken. " in done.stdout


FINDINGS = [
    Finding(part="Python", state="ok", detail="3.11.2, /venv/bin/python"),
    Finding(part="TVM", state="ok", detail="0.27.0, CPU rocketlake"),
    Finding(part="LiteRT", state="ok", detail="2.3.0"),
    Finding(part="C linker", state="missing", detail="no gcc or clang", todo=("install gcc or clang",)),
    Finding(part="simulated Kryo core", state="ok", detail="qemu-user 7.2; 0.7 GB in /cache"),
]


def test_the_text():
    assert (
        doctor_text(FINDINGS)
        == """\
part                 state    details
-------------------  -------  -------------------------------
Python               ok       3.11.2, /venv/bin/python
TVM                  ok       0.27.0, CPU rocketlake
LiteRT               ok       2.3.0
C linker             missing  no gcc or clang
simulated Kryo core  ok       qemu-user 7.2; 0.7 GB in /cache

to do:
  C linker: install gcc or clang

experiments can run on the simulated Kryo core
"""
    )
    assert exit_code(FINDINGS) == 0


def test_the_json():
    data = json.loads(doctor_json(FINDINGS))
    assert data["runs"] == ["the simulated Kryo core"]
    assert data["parts"][3] == {
        "part": "C linker",
        "state": "missing",
        "detail": "no gcc or clang",
        "todo": ["install gcc or clang"],
    }


def test_without_litert_nothing_runs():
    assert exit_code([Finding(part="LiteRT", state="missing", detail="not installed")]) == 3
