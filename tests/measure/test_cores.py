"""Clusters of cores, which of them a spec means, and that a measurement stays on them."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys

import pytest

from layoutlab.errors import DeviceError
from layoutlab.measure.cores import choose_cores, clusters, core_ranges, usable_cores
from layoutlab.measure.inputs import make_inputs, save_sets

from ..conftest import TINY
from .trees import core, four_and_four, plain_x86, three_clusters, write_cores

EIGHT = range(8)
PHONE = "there are cores 4-7 (big), cores 0-3 (little)"


def refused(*arguments, **options) -> str:
    with pytest.raises(DeviceError) as caught:
        choose_cores(*arguments, **options)
    return str(caught.value)


def test_a_phone_with_four_big_and_four_little_cores(tmp_path):
    root = four_and_four(tmp_path)
    assert clusters(EIGHT, root) == [(4, 5, 6, 7), (0, 1, 2, 3)]
    assert choose_cores("big", 4, EIGHT, root) == (4, 5, 6, 7)
    assert choose_cores("little", 1, EIGHT, root) == (0, 1, 2, 3)
    assert choose_cores([7, 4], 2, EIGHT, root) == (4, 7)
    assert choose_cores("all", 8, EIGHT, root) is None


def test_a_phone_with_three_clusters(tmp_path):
    root = three_clusters(tmp_path)
    assert clusters(EIGHT, root) == [(7,), (4, 5, 6), (0, 1, 2, 3)]
    assert choose_cores("big", 1, EIGHT, root) == (7,)
    assert choose_cores("little", 1, EIGHT, root) == (0, 1, 2, 3)
    assert refused("big", 2, EIGHT, root) == (
        "2 threads need 2 cores, but measure.cores: big has core 7: there are core 7 (big), cores 4-6 (middle), "
        "cores 0-3 (little). Choose more cores (measure.cores) or fewer threads (baseline.threads)"
    )


def test_equal_cores_need_no_pinning(tmp_path):
    """A favoured core of a desktop CPU is no big core, and neither is any when nothing is readable."""
    for root in (plain_x86(tmp_path / "x86"), tmp_path / "nothing"):
        assert clusters(range(4), root) == [(0, 1, 2, 3)]
        assert choose_cores("big", 4, range(4), root) is None
        assert choose_cores([2], 1, range(4), root) == (2,)
        assert refused("little", 1, range(4), root) == (
            "measure.cores: little needs clusters of different cores, and here all cores are alike, as far as that "
            "can be read: there are cores 0-3. Choose big, all or a list"
        )


def test_capacities_that_only_some_cores_have_are_left_for_frequencies(tmp_path):
    cores = [core(1, 1_000_000) | {"cpu_capacity": 100}, core(1, 2_000_000)]
    assert clusters(range(2), write_cores(tmp_path, cores)) == [(1,), (0,)]


def test_cores_that_there_are_not(tmp_path):
    assert refused([4, 8, 9], 1, EIGHT, four_and_four(tmp_path)) == (
        f"measure.cores: cores 8-9 cannot be used here: {PHONE}"
    )


def test_fewer_cores_than_threads(tmp_path):
    assert refused([4, 6], 4, EIGHT, four_and_four(tmp_path)) == (
        f"4 threads need 4 cores, but measure.cores: a list has cores 4,6: {PHONE}. "
        "Choose more cores (measure.cores) or fewer threads (baseline.threads)"
    )
    assert refused("big", 3, range(2), tmp_path / "nothing").startswith(
        "3 threads need 3 cores, but measure.cores: big has cores 0-1: there are cores 0-1. "
    )


def test_big_cores_that_are_not_ours_are_not_exchanged_for_little_ones(tmp_path):
    """As Android does with programs in the background."""
    root = four_and_four(tmp_path)
    assert refused("big", 1, range(4), root) == (
        f"measure.cores: big means cores 4-7, and this process may use none of them: {PHONE}, of which this process "
        "may use cores 0-3"
    )
    assert choose_cores("big", 1, range(6), root) == (4, 5)
    assert choose_cores("little", 1, range(4), root) is None


def test_ranges():
    assert [core_ranges(cores) for cores in ((3,), (2, 0, 1), (0, 2, 3, 7))] == ["3", "0-2", "0,2-3,7"]


needs_two = pytest.mark.skipif(len(usable_cores()) < 2, reason="one core: nothing to choose from")


@needs_two
def test_a_job_measures_on_its_cores(tmp_path):
    """Seen from outside: the job's process runs on the core alone while it measures."""
    inputs, wanted = tmp_path / "inputs.npz", usable_cores()[-1]
    save_sets(inputs, make_inputs([{"shape": (1, 32, 32, 3), "dtype": "float32"}], (-1, 1), 1, 1))
    runner = {"kind": "tflite", "path": str(TINY / "tiny_mobilenet.tflite"), "threads": 1}
    sizes = {"repeats": 2, "min_repeat_ms": 1, "warmup_ms": 300}
    job = {"verb": "take_samples", "runner": runner, "inputs": str(inputs), "cores": [wanted], **sizes}
    seen = set()
    with subprocess.Popen(
        [sys.executable, "-m", "layoutlab.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["event"] == "stage"
        while not select.select([process.stdout], [], [], 0.01)[0]:
            seen.add(frozenset(os.sched_getaffinity(process.pid)))
        result = json.loads(process.stdout.readline())
    assert result["value"]["cores"] == [wanted]
    assert frozenset({wanted}) in seen


# TVM's pool starts its workers, and would bind them and the main thread to the first cores.
POOL = """
import os, sys
from pathlib import Path
from layoutlab.measure.cores import pinned, usable_cores
before, wanted = usable_cores(), int(sys.argv[1])
with pinned([wanted]):
    import tvm
    tvm.get_global_func("runtime.config_threadpool")(1, 2)
    threads = {int(path.name) for path in Path("/proc/self/task").iterdir()}
    affinities = [os.sched_getaffinity(thread) for thread in threads]
assert affinities.count({wanted}) >= 2, affinities
assert usable_cores() == before
"""


@needs_two
def test_threads_of_tvm_stay_on_the_cores():
    done = subprocess.run(
        [sys.executable, "-c", POOL, str(usable_cores()[-1])],
        env={**os.environ, "TVM_NUM_THREADS": "2", "TVM_USE_RUNTIME_LIB": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
