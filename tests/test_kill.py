"""kill -9, again and again: whatever is killed and whenever, the same command goes on and ends as if nothing had been.

The real command line on a terminal of its own, for the number of trials it reports is checked as well. The moments
are drawn with a seed, but fall into real time: no two runs of this test are killed in quite the same places.
"""

from __future__ import annotations

import contextlib
import os
import pty
import random
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest

from .test_experiment import RUN, events, rows, run, write

BATCH = 4
COLUMNS = ["variant", "conv layouts", "ms (MAD)", "x TFLite [95 %]", "verdict", "transforms", "tuned", "trials"]


class Terminal:
    """`layoutlab run` in `folder`, showing its progress on a terminal."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._shown = folder, b""
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            RUN,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=slave,
            text=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # how a terminal says that the last process has closed it
            while shown := os.read(self._master, 65536):
                self._shown += shown

    def reported(self) -> list[int]:
        """Every number of trials that the progress line said are done; none before tuning began."""
        return [int(number) for number in re.findall(rb"tuning, trials (\d+) of", self._shown)]

    def wait_until(self, condition) -> None:
        deadline = time.monotonic() + 600  # a busy machine is no failure
        while not condition():
            assert self.process.poll() is None, self._shown.decode()
            assert time.monotonic() < deadline, self._shown.decode()
            time.sleep(0.02)

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> str:
        """What it printed, when it has ended."""
        stdout, _ = self.process.communicate(timeout=600)
        self._reader.join()
        os.close(self._master)
        return stdout

    def text(self) -> str:
        return self._shown.decode()


@pytest.fixture
def terminal():
    """Starts runs, and leaves none behind."""
    started: list[Terminal] = []

    def start(folder: Path) -> Terminal:
        started.append(Terminal(folder))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.kill()


def records(folder: Path) -> bytes:
    found = [path.read_bytes() for path in (folder / "results" / "runs" / "x").glob("nhwc-*/records.jsonl")]
    assert len(found) <= 1
    return b"".join(found)


def processes_in(folder: Path) -> set[int]:
    """Every process that works in `folder`: a run's own, its workers, and all that these started."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == folder:
                found.add(process.pid)
    return found


def all_gone(folder: Path, known: list[psutil.Process]) -> bool:
    """Whether within ten seconds none of the `known` processes is left, and no other that works in `folder`."""
    for _ in range(100):
        alive = [process for process in known if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
        if not alive and not processes_in(folder):
            return True
        time.sleep(0.1)
    return False


def moments(kills: int, trials: int) -> list[tuple[int, float]]:
    """When to kill: the records there must be, up to half of all, and the seconds to wait after that."""
    random_ = random.Random(f"{kills} kills")
    stored = sorted(random_.randrange(trials // 2) for _ in range(kills))
    return [(lines, random_.uniform(0, 1)) for lines in stored]


def kill_while_tuning(begun: Terminal, folder: Path, lines: int, seconds: float) -> int:
    """Kill it when so many records are there, so many seconds later; returns the number of processes that ended."""
    begun.wait_until(lambda: begun.reported() and records(folder).count(b"\n") >= lines)
    time.sleep(seconds)
    known = psutil.Process(begun.process.pid).children(recursive=True)
    begun.kill()
    assert all_gone(folder, known)
    assert begun.process.returncode == -signal.SIGKILL
    return len(known)


@pytest.mark.parametrize(("kills", "trials"), [(3, 16), pytest.param(20, 80, marks=pytest.mark.slow)])
def test_a_run_killed_again_and_again_loses_no_trial_and_ends_as_any_other(tmp_path, terminal, kills, trials):
    write(tmp_path, ["{name: nhwc, alter_op_layout: keep}"], trials=trials)
    most_processes, kept = 0, b""
    for lines, seconds in moments(kills, trials):
        begun = terminal(tmp_path)
        most_processes = max(most_processes, kill_while_tuning(begun, tmp_path, lines, seconds))
        stored = records(tmp_path)
        # It began with all that was kept before, and kept that and every trial that it reported.
        first, last = begun.reported()[0], begun.reported()[-1]
        assert first == kept.count(b"\n")
        assert stored.startswith(kept)
        assert last <= stored.count(b"\n") <= last + BATCH
        assert stored.count(b"\n") < trials
        kept = stored[: stored.rfind(b"\n") + 1]

    whole = terminal(tmp_path)
    stdout = whole.end()
    assert whole.process.returncode == 0, whole.text()
    # The worker, and the server, the builders and the runner of the pool: the kills did hit a tuning run.
    assert most_processes >= 4
    stored = records(tmp_path)
    assert stored.startswith(kept)
    assert stored.count(b"\n") == trials
    assert re.split(r"  +", stdout.splitlines()[2])[: len(COLUMNS)] == COLUMNS
    table = rows(tmp_path)
    assert list(table) == ["nhwc", "tflite"]
    assert (table["nhwc"]["trials"], table["nhwc"]["ops_tuned"], table["nhwc"]["ops"]) == (str(trials), "5", "5")
    assert (table["nhwc"]["outputs_ok"], table["nhwc"]["failure"]) == ("True", "")
    assert table["nhwc"]["flags"] in ("", "unstable")  # the latter on a busy machine
    assert float(table["nhwc"]["median_ms"]) > 0 < float(table["tflite"]["median_ms"])
    assert len(events(tmp_path, "built")) == 1


def test_a_killed_worker_costs_its_variant_which_goes_on_in_the_next_run(tmp_path, terminal):
    write(
        tmp_path,
        ["{name: nhwc, alter_op_layout: keep}", "{name: nchw, convert_layout: NCHW, tune: false}"],
        trials=8,
    )
    first = terminal(tmp_path)
    first.wait_until(lambda: max(first.reported(), default=0) >= BATCH)
    (worker,) = psutil.Process(first.process.pid).children()
    known = worker.children(recursive=True)
    worker.kill()
    first.end()
    assert all_gone(tmp_path, known)
    assert first.process.returncode == 1
    said = "variant 1 of 2 (nhwc): failed: tune: the process was killed by SIGKILL (log: results/runs/x/logs/nhwc.log)"
    assert said in first.text()
    table = rows(tmp_path)
    assert {name: row["failure"] for name, row in table.items()} == {
        "nhwc": "tune: the process was killed by SIGKILL",
        "nchw": "",
        "tflite": "",
    }
    assert table["nhwc"]["median_ms"] == ""
    assert float(table["nchw"]["median_ms"]) > 0

    stored = records(tmp_path)
    kept = stored[: stored.rfind(b"\n") + 1]
    assert BATCH <= kept.count(b"\n") < 8
    again = run(tmp_path)
    assert again.returncode == 0, again.stderr
    assert records(tmp_path).startswith(kept)
    assert records(tmp_path).count(b"\n") == 8
    assert {name: row["failure"] for name, row in rows(tmp_path).items()} == {"nhwc": "", "nchw": "", "tflite": ""}
