"""What this machine has of what layoutlab needs, and what to do about the rest."""

from __future__ import annotations

import json
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from layoutlab.device.choose import LINKERS
from layoutlab.device.kryo.commands import size
from layoutlab.device.kryo.provision import DOWNLOAD_BYTES, found, is_downloaded, missing
from layoutlab.errors import EXIT_NO_DEVICE, EXIT_OK, StageError
from layoutlab.findings import Finding, findings_text
from layoutlab.process import run_job

_INSTALL = "run `make experiment` or `pip install -e .`, which install it"

# The parts that each kind of run needs.
_RUNS = {
    "this machine itself": ("Python", "TVM", "LiteRT", "C linker"),
    "the simulated Kryo core": ("Python", "TVM", "LiteRT", "simulated Kryo core"),
}


def diagnose() -> list[Finding]:
    """Look at every part; starts TVM in a worker process, asks nothing of the network."""
    return [_python(), _tvm(), litert(), linker(), simulated_core()]


def doctor_text(findings: Sequence[Finding]) -> str:
    """A table, what to do, and what can be run."""
    runs = what_runs(findings)
    return findings_text(
        findings, f"experiments can run on {' and '.join(runs)}" if runs else "no experiment can run here"
    )


def doctor_json(findings: Sequence[Finding]) -> str:
    """The same as JSON."""
    data = {"parts": [asdict(finding) for finding in findings], "runs": what_runs(findings)}
    return json.dumps(data, indent=1) + "\n"


def what_runs(findings: Iterable[Finding]) -> list[str]:
    """On what experiments can run."""
    lacking = {finding.part for finding in findings if finding.state == "missing"}
    return [run for run, parts in _RUNS.items() if not lacking.intersection(parts)]


def exit_code(findings: Iterable[Finding]) -> int:
    """0 when any experiment can run."""
    return EXIT_OK if what_runs(findings) else EXIT_NO_DEVICE


def _python() -> Finding:
    return Finding(part="Python", state="ok", detail=f"{platform.python_version()}, {sys.executable}")


def _tvm() -> Finding:
    try:
        installed = version("apache-tvm")
    except PackageNotFoundError:
        return Finding(part="TVM", state="missing", detail="not installed", todo=(_INSTALL,))
    with tempfile.TemporaryDirectory(prefix="layoutlab-") as folder:
        log = Path(folder) / "host.log"
        try:
            target = run_job("describe_host", {}, log=log, timeout_s=120)
        except StageError as error:
            last = (log.read_text(errors="replace").strip().splitlines() or ["it says nothing"])[-1]
            todo = f'{installed} does not start: {error.cause}. Its last words: "{last}". Install it anew: {_INSTALL}'
            return Finding(part="TVM", state="missing", detail=f"{installed}, does not start", todo=(todo,))
    return Finding(part="TVM", state="ok", detail=f"{installed}, CPU {target['mcpu']}")


def litert() -> Finding:
    """Whether LiteRT is installed here."""
    try:
        return Finding(part="LiteRT", state="ok", detail=version("ai-edge-litert"))
    except PackageNotFoundError:
        return Finding(part="LiteRT", state="missing", detail="not installed", todo=(_INSTALL,))


def linker() -> Finding:
    """Whether there is a C compiler, with which TVM links for this machine."""
    path = next(filter(None, map(shutil.which, LINKERS)), None)
    if path:
        return Finding(part="C linker", state="ok", detail=path)
    todo = "install gcc or clang (on Debian: apt-get install g++); TVM links with it what it compiles for this machine"
    return Finding(part="C linker", state="missing", detail="no gcc or clang", todo=(todo,))


def simulated_core() -> Finding:
    """Whether the simulated Kryo core is there, or can be had."""
    part = "simulated Kryo core"
    core = found()
    if core:
        where = f"{size(core.sizes['unpacked_bytes'])} in {core.zig.parents[2]}"
        return Finding(part=part, state="ok", detail=f"{core.summary()}; {where}")
    problems = missing()
    if problems:
        todo = tuple(str(problem) for problem in problems)
        return Finding(part=part, state="missing", detail="cannot be provisioned on this machine", todo=todo)
    if is_downloaded():
        detail = "downloaded, its plugin is compiled when it is needed"
    else:
        detail = f"not provisioned; the first experiment for it does it ({size(DOWNLOAD_BYTES)} of downloads, a minute)"
    return Finding(part=part, state="later", detail=detail)
