"""kill -9 of the command, a worker or an agent, at any moment. `test_kill.py` looks closer at tuning."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from ..device.agents import serving
from ..test_kill import all_gone
from .runs import LAYOUTLAB, TUNED, UNTUNED, events, layoutlab, rows, tables, trials, write

TRIALS, ROUNDS = 12, 3


def kept(folder: Path) -> dict[str, list[bytes]]:
    """The whole lines of the files that a run appends to."""
    runs = folder / "results" / "runs" / "x"
    found = [*runs.glob("events.jsonl"), *runs.glob("*/records.jsonl"), *runs.glob("*/workloads.jsonl")]
    return {str(path.relative_to(runs)): path.read_bytes().split(b"\n")[:-1] for path in found}


def require_kept(folder: Path, before: dict[str, list[bytes]]) -> dict[str, list[bytes]]:
    """Every line that was whole before is there, in its place, and every line is JSON; so are the tables."""
    now = kept(folder)
    for name, lines in before.items():
        assert now[name][: len(lines)] == lines, name
    for name, lines in now.items():
        for line in lines:
            json.loads(line), name
    if (folder / "results" / "x").exists():
        for name, content in tables(folder).items():
            if name.endswith(".json"):
                json.loads(content)
            elif name.endswith(".csv"):
                assert len({len(row) for row in csv.reader(content.decode().splitlines())}) == 1, name
            elif not name.startswith("."):
                assert content.endswith(b"\n"), name
    return now


def require_finished(folder: Path) -> None:
    """As a run that nobody disturbed: the whole budget and no more, each round of each row once, no failure."""
    assert trials(folder) == TRIALS
    assert {name: row["failure"] for name, row in rows(folder).items()} == dict.fromkeys(("nhwc", "nchw", "tflite"), "")
    assert rows(folder)["nhwc"]["trials"] == str(TRIALS)
    protocol = events(folder, "finished")[-1]["protocol"]
    taken = [(event["round"], event["row"]) for event in events(folder, "samples") if event["protocol"] == protocol]
    assert sorted(taken) == sorted((number, row) for number in range(ROUNDS) for row in ("nhwc", "nchw", "tflite"))


def test_a_run_killed_while_it_measures_measures_the_rest(finished):
    write(finished, [TUNED, UNTUNED], trials=8, rounds=ROUNDS)
    old, begun = tables(finished), len(events(finished, "samples"))
    random_ = random.Random("measuring")
    run = subprocess.Popen([*LAYOUTLAB, "run", "x.yaml"], cwd=finished, stderr=subprocess.DEVNULL)
    samples, seconds = random_.randrange(1, 6), random_.uniform(0, 0.5)
    while len(events(finished, "samples")) < begun + samples:
        assert run.poll() is None
        time.sleep(0.02)
    time.sleep(seconds)
    known = psutil.Process(run.pid).children(recursive=True)
    run.kill()
    assert run.wait() == -signal.SIGKILL
    assert all_gone(finished, known)
    before = require_kept(finished, {})
    assert tables(finished) == old
    measured = events(finished, "samples")
    done = layoutlab(finished, "run", "x.yaml")
    assert done.returncode == 0, done.stderr
    require_kept(finished, before)
    assert events(finished, "samples")[: len(measured)] == measured
    protocol = measured[-1]["protocol"]
    taken = [(event["round"], event["row"]) for event in events(finished, "samples") if event["protocol"] == protocol]
    assert len(taken) == len(set(taken)) == 3 * ROUNDS
    assert len(events(finished, "built")) == 2


@dataclass
class Experiment:
    """One experiment in a folder of its own, which is killed again and again until it has ended."""

    folder: Path
    device: Sequence[str]
    before: dict[str, list[bytes]] = field(default_factory=dict)
    finished: bool = False

    def kill(self, target: str, seconds: float, agent: psutil.Process | None) -> str | None:
        """Begin or go on, kill after so many seconds; what was killed, None when all had ended before."""
        command = [*LAYOUTLAB, "run", "x.yaml", *self.device]
        with open(self.folder / "said", "w+b") as said:
            run = subprocess.Popen(command, cwd=self.folder, stdout=said, stderr=said)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(timeout=seconds)
            parent = psutil.Process(run.pid) if run.poll() is None else None
            known = parent.children(recursive=True) if parent else []
            victim = self._victim(target, parent, known, agent)
            if victim is not None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    victim.kill()
            run.wait(timeout=400)
            said.seek(0)
            text = said.read().decode()
        assert "Traceback" not in text, text
        assert all_gone(self.folder, known)
        self.before = require_kept(self.folder, self.before)
        self.finished = run.returncode == 0
        if self.finished:
            require_finished(self.folder)
        else:
            assert run.returncode in (1, 2, 3, -signal.SIGKILL), text
        return target if victim is not None else None

    @staticmethod
    def _victim(
        target: str, parent: psutil.Process | None, known: list[psutil.Process], agent: psutil.Process | None
    ) -> psutil.Process | None:
        if parent is None:
            return None
        if target == "agent":
            return agent
        return parent if target == "parent" or not known else known[len(known) // 2]


@contextlib.contextmanager
def agent_of(is_remote: bool) -> Iterator[tuple[list[str], psutil.Process | None]]:
    """The options for a device, and its agent."""
    if not is_remote:
        yield [], None
        return
    with serving([*LAYOUTLAB, "agent", "--port", "0"], "agent") as (process, port):
        yield ["--device", f"agent://127.0.0.1:{port}"], psutil.Process(process.pid)


def kill_again_and_again(folder: Path, kills: int, seed: str) -> dict[str, int]:
    """So many kills, in as many experiments as it takes, each of them brought to its end; how often what was killed.

    The first experiment is left alone and tells how long one takes here, so that the moments are anywhere in it.
    """
    random_ = random.Random(seed)
    killed = {"parent": 0, "worker": 0, "agent": 0}
    number, length_s = 0, float("inf")
    while sum(killed.values()) < kills:
        number += 1
        is_remote = number % 2 == 0
        experiment = Experiment(write(folder / str(number), [TUNED, UNTUNED], TRIALS, ROUNDS), [])
        started = time.monotonic()
        while not experiment.finished:
            is_enough = number == 1 or sum(killed.values()) >= kills
            target = random_.choice(["parent", "worker", "agent"] if is_remote else ["parent", "worker"])
            seconds = 400.0 if is_enough else random_.uniform(0, length_s)
            # A new agent each time: a board that starts again has another address or the same.
            with agent_of(is_remote) as (options, agent):
                experiment.device = options
                done = experiment.kill(target, seconds, agent)
            if done:
                killed[done] += 1
        length_s = min(length_s, time.monotonic() - started)
    return {**killed, "experiments": number}


@pytest.mark.slow
def test_fifty_kills_at_random_moments(tmp_path):
    killed = kill_again_and_again(tmp_path, int(os.environ.get("LAYOUTLAB_KILLS", "50")), "fifty kills")
    print(killed)
    assert all(killed.values())
