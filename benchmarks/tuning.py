"""Tuning by layoutlab against stock MetaSchedule: the same tasks, as many trials, on this machine.

One after the other, each tuner has a process of its own (`tune_ours`, `tune_stock`); then their best candidates are
measured in turns (`remeasure`). The table goes to standard output, progress to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from benchmarks.plan import OURS, STOCK, Plan, database_paths
from benchmarks.summary import Ending, Measured, tables, total
from layoutlab.device.cpu import cpu_name

ROOT = Path(__file__).resolve().parents[1]
_MODEL = ROOT / "experiments" / "models" / "mobilenet_v3_large_minimalistic_224.tflite"
_PACKAGES = ("layoutlab", "apache-tvm", "apache-tvm-ffi", "xgboost-cpu", "xgboost", "numpy")
_SHOW_EVERY_S = 15.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when both tuners finished, 1 when one did not."""
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-tuning-") as name:
        folder = Path(name)
        chosen = [str(options.model.resolve()), options.tasks, str(options.trials), str(options.seed)]
        _require(_run("prepare", folder, *chosen))
        plan = Plan.read(folder)
        _say(f"{plan.model}: {', '.join(task.name for task in plan.tasks)}; {plan.trials} trials for each tuner")
        endings = {
            OURS: _run("tune_ours", folder, tuner=OURS, limit_s=60 * options.limit_min),
            STOCK: _run("tune_stock", folder, tuner=STOCK, limit_s=60 * options.limit_min),
        }
        _require(_run("remeasure", folder))
        failures = find_failures(folder)
        measured = [Measured(**row) for row in json.loads((folder / "measured.json").read_text())]
    machine = describe_machine()
    print(tables(plan.tasks, measured, endings, failures, machine), end="")
    if options.json:
        options.json.write_text(json.dumps(_data(plan, measured, endings, failures, machine), indent=1) + "\n")
    return int(any(ending.problem for ending in endings.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench-tuning", description=__doc__)
    parser.add_argument("--model", type=Path, default=_MODEL, help="a .tflite file (default: MobileNetV3)")
    parser.add_argument(
        "--tasks",
        default="2",
        help="so many tasks, those with the most arithmetic, or names of tasks between commas (default: %(default)s)",
    )
    parser.add_argument(
        "--trials",
        type=_positive,
        default=128,
        help="candidates over all tasks; stock tries 64 of a task at once, so less than 64 for each leaves it "
        "tasks without any (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of both searches (default: %(default)s)")
    parser.add_argument(
        "--limit-min", type=float, default=60, help="end a tuner after so many minutes (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("expected a number from 1")
    return number


def _run(program: str, folder: Path, *arguments: str, tuner: str | None = None, limit_s: float = 900) -> Ending:
    """Run a program of the benchmark to its end, or end it with all that it started after `limit_s` seconds."""
    log = folder / f"{program}.log"
    environment = {**os.environ, "TVM_NUM_THREADS": "1"}
    command = [sys.executable, "-m", f"benchmarks.{program}", str(folder), *arguments]
    started = time.monotonic()
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        for waited_s in _wait(process, limit_s):
            trials = "" if tuner is None else f", {_lines(database_paths(folder, tuner)[1])} trials written"
            _say(f"{program}: {waited_s:.0f} s{trials}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    seconds = time.monotonic() - started
    _say(f"{program}: ended after {seconds:.0f} s")
    return Ending(seconds=seconds, problem=_problem(code, seconds > limit_s, limit_s, log))


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> Iterator[float]:
    """Until the process ends or has had its time; yields the seconds so far, once in a while."""
    started = time.monotonic()
    while (waited_s := time.monotonic() - started) < limit_s:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(_SHOW_EVERY_S, limit_s - waited_s))
            return
        yield time.monotonic() - started


def _problem(code: int, late: bool, limit_s: float, log: Path) -> str | None:
    """Why a program did not finish; None if it did."""
    if late:
        return f"ended after {limit_s:.0f} s; --limit-min gives it more"
    if code == 0:
        return None
    said = log.read_text(errors="replace").strip().splitlines() or ["nothing"]
    return f"exit code {code}; it said last: {said[-1][:300]}"


def _require(ending: Ending) -> None:
    if ending.problem:
        raise SystemExit(f"the benchmark cannot go on: {ending.problem}")


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def find_failures(folder: Path) -> dict[str, dict[str, int]]:
    """How many candidates of each tuner failed for which reason, as its logs tell it."""
    ours = (folder / "tune_ours.log").read_text(errors="replace")
    stock = "".join(path.read_text(errors="replace") for path in (folder / STOCK / "logs").glob("*.log"))
    return {
        OURS: dict(Counter(re.findall(r"^task \S+: (.*)", ours, re.MULTILINE))),
        STOCK: dict(Counter(re.findall(r": Error in (?:building|running):\n(.*)", stock))),
    }


def describe_machine() -> dict[str, str]:
    """CPU, cores, memory, system and versions: what the figures hold for."""
    found = []
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):  # xgboost goes by two names
            found.append(f"{package} {version(package)}")
    memory_gib = psutil.virtual_memory().total / 2**30
    cores = len(os.sched_getaffinity(0))
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        system = "unknown system"
    return {
        "CPU": f"{cpu_name()}, {cores} of {psutil.cpu_count()} cores, {memory_gib:.0f} GiB of memory",
        "system": f"{system}, Linux {platform.release()}, Python {platform.python_version()}",
        "versions": ", ".join(found),
    }


def _data(
    plan: Plan,
    measured: Sequence[Measured],
    endings: dict[str, Ending],
    failures: dict[str, dict[str, int]],
    machine: dict[str, str],
) -> dict[str, Any]:
    return {
        "plan": asdict(plan),
        "totals": {tuner: asdict(total(tuner, plan.tasks, measured, endings[tuner])) for tuner in endings},
        "problems": {tuner: ending.problem for tuner, ending in endings.items() if ending.problem},
        "failures": failures,
        "tasks": [asdict(row) for row in measured],
        "machine": machine,
    }


if __name__ == "__main__":
    sys.exit(main())
