"""Candidates built by a real dask cluster on this machine, whose workers are killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import dask
import pytest
from distributed import Client, LocalCluster

from layoutlab.engine.relax.tune import cluster as cluster_module
from layoutlab.engine.relax.tune.cluster import Cluster
from layoutlab.engine.relax.tune.coverage import coverage
from layoutlab.engine.relax.tune.executors import as_finished
from layoutlab.engine.relax.tune.records import open_database
from layoutlab.engine.relax.tune.tuner import tune
from layoutlab.errors import StageError

from .running import tuning_options
from .test_tune import TARGET, tasks

__all__ = ["tasks"]


@pytest.fixture(scope="module")
def local():
    """A scheduler with two workers, each a process that is started again when it ends."""
    with (
        # One that kills its worker is tried by one other worker, instead of by three.
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as started,
    ):
        yield started


@pytest.fixture
def address(local) -> str:
    return local.scheduler_address.replace("tcp://", "dask://")


def test_a_tuning_outlives_a_killed_worker(tasks, tmp_path: Path, local, address):
    """It is killed when the first batch was measured; its builds are done again by the other."""
    killed = []

    def report(event, **fields):
        if fields["done"] > 0 and not killed:
            with Client(local, set_as_default=False) as client:
                pids = client.run(os.getpid)
                killed.append(next(iter(pids.values())))
            os.kill(killed[0], signal.SIGKILL)

    database = open_database(tmp_path)
    few = tasks[:2]
    changes = {"workers": address, "search": "replay-trace", "min_repeat_ms": 1}
    tune(few, TARGET, tuning_options(12, **changes), database, tmp_path / "candidates", report)
    assert killed
    found = coverage(database, few)
    assert (sum(task.trials for task in found), sum(task.failed for task in found)) == (12, 0)


def test_a_build_that_kills_workers_fails_alone(address):
    with Cluster(address, "host") as cluster:
        executor = cluster.executor()
        builds = [executor.submit(os._exit, 1), executor.submit(os.getpid)]
        finished = sorted(as_finished(builds, "the build", require_alive=cluster.require_workers))
    assert finished[0] == (0, None, "the build ended every worker of the dask cluster that tried it")
    assert finished[1][2] is None


def test_nobody_at_the_address(monkeypatch):
    monkeypatch.setattr(cluster_module, "_CONNECT_S", 1.0)
    with pytest.raises(StageError) as caught:
        Cluster("dask://127.0.0.1:1", "host")
    assert str(caught.value) == (
        "tune: tuning.workers: no dask scheduler answers at dask://127.0.0.1:1. Start one there, dask scheduler, or "
        "leave tuning.workers out to build on this machine"
    )


def test_a_cluster_without_workers(monkeypatch):
    monkeypatch.setattr(cluster_module, "_CONNECT_S", 3.0)
    with LocalCluster(n_workers=0, dashboard_address=":0") as empty:
        address = empty.scheduler_address.replace("tcp://", "dask://")
        with pytest.raises(StageError) as caught:
            Cluster(address, "host")
    assert str(caught.value) == (
        f"tune: tuning.workers: the dask scheduler at {address} has no workers. Start some, dask worker "
        f"{address.removeprefix('dask://')}, and run again: the run goes on where it was"
    )


def test_workers_with_another_tvm(address, monkeypatch):
    # Here alone: the workers are other processes.
    monkeypatch.setattr(cluster_module, "versions", lambda: {"apache-tvm": "0.99", "apache-tvm-ffi": "0.1.14.post0"})
    with pytest.raises(StageError) as caught:
        Cluster(address, "host")
    assert str(caught.value).startswith("tune: tuning.workers: the dask worker tcp://127.0.0.1:")
    assert str(caught.value).endswith(" has apache-tvm 0.27.0.post1 (here 0.99). Both sides need the same")


def test_without_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(StageError) as caught:
        Cluster("dask://127.0.0.1:1", "host")
    assert str(caught.value) == (
        "tune: tuning.workers: dask://127.0.0.1:1 needs dask, which is not installed: pip install 'layoutlab[dask]'"
    )
