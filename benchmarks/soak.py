"""Experiment after experiment in one process, for as long as is asked for: does anything stay behind?

Each turn runs a spec on a tiny network from nothing (tuning, a variant whose hook crashes its worker, checks, rounds,
tables), runs it again, and removes it. After each turn it looks at this process (memory, open files, threads), at its
children, and at the temporary folder and semaphores that they use. `make soak`, or `make soak ARGS="--minutes 30"`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import psutil

from layoutlab.errors import EXIT_VARIANT_FAILED
from layoutlab.experiment import run_experiment
from layoutlab.progress import Progress
from layoutlab.scratch import orphaned_semaphores
from layoutlab.spec.load import load_spec

ROOT = Path(__file__).resolve().parents[1]
_MODEL = ROOT / "experiments" / "models" / "tiny" / "tiny_conv.tflite"
# The first turns import modules and fill caches: what they leave is no leak.
WARM_UP_TURNS = 2
FEWEST_TURNS = WARM_UP_TURNS + 2
# Memory is compared as the median of so many turns, and may differ by so much: allocators return pages late.
_TURNS = 5
_FLAT_MIB = 4.0

_SPEC = """\
name: soak
model: {file: model.tflite}
device: host
variants:
  - {name: nhwc, alter_op_layout: keep}
  - {name: crash, alter_op_layout: soak_hooks:crash, tune: false}
tuning: {trials: 8, batch: 4, population: 8}
measure: {rounds: 2, repeats: 2, min_repeat_ms: 2, warmup_ms: 2}
"""
_HOOKS = "import os\n\n\ndef crash(conv):\n    os.abort()\n"


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """What there is after a turn: this process' memory, files and threads, its children, and what lies in folders."""

    memory_mib: float
    descriptors: int
    threads: int
    children: int
    temporary_files: int
    semaphores: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run turns until the time is up; 0 when nothing stayed behind, 1 when something did."""
    options = _parser().parse_args(arguments)
    until = time.monotonic() + 60 * options.minutes
    taken: list[Footprint] = []
    with _own_temporary_folder() as temporary:
        while len(taken) < max(options.turns, FEWEST_TURNS) or time.monotonic() < until:
            turn()
            taken.append(take_footprint(temporary))
            if options.progress:
                print(f"turn {len(taken)}: {_shown(taken[-1])}", file=sys.stderr, flush=True)
    problems = find_leaks(taken)
    print(summary(taken, problems), end="")
    if options.json:
        options.json.write_text(json.dumps([asdict(footprint) for footprint in taken], indent=1) + "\n")
    return int(bool(problems))


def turn() -> None:
    """One experiment from nothing, and the same again; raises RuntimeError when it ends otherwise than it must."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "soak.yaml").write_text(_SPEC, encoding="utf-8")
        (folder / "soak_hooks.py").write_text(_HOOKS, encoding="utf-8")
        shutil.copy(_MODEL, folder / "model.tflite")
        for _ in range(2):
            # What is said each time is nothing to read a hundred times.
            with contextlib.redirect_stderr(io.StringIO()), Progress() as progress:
                done = run_experiment(load_spec(folder / "soak.yaml"), folder / "results", progress, ["soak_hooks"])
            if done.exit_code != EXIT_VARIANT_FAILED:
                raise RuntimeError(f"the experiment ended with {done.exit_code}, expected {EXIT_VARIANT_FAILED}")


def take_footprint(temporary: Path) -> Footprint:
    """What there is now; `temporary` is the folder of everything temporary."""
    gc.collect()
    process = psutil.Process()
    return Footprint(
        memory_mib=process.memory_info().rss / 2**20,
        descriptors=process.num_fds(),
        threads=process.num_threads(),
        children=len(process.children(recursive=True)),
        temporary_files=sum(1 for _ in temporary.rglob("*")),
        semaphores=len(orphaned_semaphores()),
    )


def find_leaks(taken: Sequence[Footprint]) -> list[str]:
    """What grew between the first turns after the warm-up and the last ones, in words."""
    steady = taken[WARM_UP_TURNS:]
    some = min(_TURNS, len(steady) // 2)
    problems = []
    for field in fields(Footprint):
        before, after = (
            statistics.median(getattr(footprint, field.name) for footprint in part)
            for part in (steady[:some], steady[-some:])
        )
        if after - before > (_FLAT_MIB if field.name == "memory_mib" else 0):
            problems.append(f"{field.name.replace('_', ' ')} grew from {before:g} to {after:g}")
    return problems


def summary(taken: Sequence[Footprint], problems: Sequence[str]) -> str:
    """The first turn after the warm-up, the last one, and the verdict."""
    lines = [f"{len(taken)} turns, {WARM_UP_TURNS} of them warm-up"]
    lines += [f"first: {_shown(taken[WARM_UP_TURNS])}", f"last:  {_shown(taken[-1])}"]
    lines += [f"leak: {problem}" for problem in problems] or ["nothing stayed behind"]
    return "".join(f"{line}\n" for line in lines)


def _shown(footprint: Footprint) -> str:
    return ", ".join(
        f"{value:.1f} MiB" if name == "memory_mib" else f"{value} {name.replace('_', ' ')}"
        for name, value in asdict(footprint).items()
    )


@contextlib.contextmanager
def _own_temporary_folder() -> Iterator[Path]:
    """A folder that this process and all that it starts take for the system's temporary one."""
    before = os.environ.get("TMPDIR")
    # A short path: the sockets of process pools lie in there.
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        os.environ["TMPDIR"] = tempfile.tempdir = name
        try:
            yield Path(name)
        finally:
            tempfile.tempdir = None
            os.environ.pop("TMPDIR")
            if before is not None:
                os.environ["TMPDIR"] = before


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make soak ARGS=...", description="Run for long, and look for what is left.")
    parser.add_argument("--minutes", type=float, default=30.0, help="at least so long (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=FEWEST_TURNS, help="at least so many (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the footprint of each turn to this file")
    parser.add_argument("--progress", action="store_true", help="show each turn as it ends")
    return parser


if __name__ == "__main__":
    sys.exit(main())
