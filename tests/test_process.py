"""Workers: real processes that answer, fail, crash, hang and outlive nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from layoutlab import errors, jobs, scratch
from layoutlab.errors import ModelError, StageError, UsageError
from layoutlab.memory import machine_limit_bytes
from layoutlab.process import Worker, run_job
from layoutlab.scratch import orphaned_semaphores


@pytest.fixture
def verbs(tmp_path, monkeypatch):
    """Makes verbs for workers from source text, through the hook that Python runs at start-up."""

    def make(source: str) -> dict[str, str]:
        (tmp_path / "sitecustomize.py").write_text(
            "from layoutlab import jobs\ndef verb(function):\n    jobs.VERBS[function.__name__] = function\n" + source
        )
        return {"PYTHONPATH": str(tmp_path)}

    return make


def test_a_result_comes_back_and_events_before_it(verbs, tmp_path):
    environment = verbs(
        "@verb\ndef add(report, a, b):\n"
        "    print('chatter on standard output')\n"
        "    report('stage', name='adding')\n"
        "    return {'sum': a + b}\n"
    )
    events = []
    value = run_job("add", {"a": 1, "b": 2}, log=tmp_path / "x.log", on_event=events.append, environment=environment)
    assert value == {"sum": 3}
    assert events == [{"event": "stage", "name": "adding"}]
    assert "chatter on standard output" in (tmp_path / "x.log").read_text()


def failure(verbs, tmp_path, body: str, **options) -> StageError:
    environment = verbs(
        f"import os, signal, time\n@verb\ndef job(report):\n    report('stage', name='tune')\n    {body}\n"
    )
    with pytest.raises(StageError) as caught:
        run_job("job", {}, log=tmp_path / "x.log", environment=environment, **options)
    assert caught.value.stage == "tune"
    assert caught.value.log == str(tmp_path / "x.log")
    return caught.value


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the process was killed by SIGSEGV"),
        ("os.abort()", "the process was killed by SIGABRT"),
        ("os._exit(3)", "the process ended with code 3 and no result"),
        ("raise SystemExit(0)", "the process ended with code 0 and no result"),
        ("raise ValueError('first line\\nlast line')", "ValueError: first line"),
        ("raise KeyError", "KeyError: no message"),
    ],
)
def test_a_worker_that_dies_is_a_failed_stage_with_its_cause(verbs, tmp_path, body, cause):
    assert failure(verbs, tmp_path, body).cause == cause


def test_the_traceback_is_in_the_log(verbs, tmp_path):
    failure(verbs, tmp_path, "raise ValueError('told in full')")
    assert "Traceback" in (tmp_path / "x.log").read_text()


def test_silence_is_ended(verbs, tmp_path):
    started = time.monotonic()
    error = failure(verbs, tmp_path, "time.sleep(60)", timeout_s=2)
    assert error.cause == "no sign of life for 2 s; the process was ended"
    assert time.monotonic() - started < 20


def test_a_dead_worker_is_noticed_when_a_child_of_its_holds_its_output(verbs, tmp_path):
    error = failure(verbs, tmp_path, "os.fork() or (os.setsid(), time.sleep(20), os._exit(0)); os._exit(3)")
    assert error.cause == "the process ended with code 3 and no result"


def test_a_worker_says_itself_how_long_something_may_take(verbs, tmp_path):
    limit = "report('limit', seconds={}, cause='it was not done within 1 s')"
    environment = verbs(
        "import time\n@verb\ndef job(report, within_s, after_s):\n"
        f"    {limit.format(1)}\n    time.sleep(within_s)\n    {limit.format(None)}\n    time.sleep(after_s)\n"
    )
    run_job("job", {"within_s": 0, "after_s": 1.5}, log=tmp_path / "x.log", environment=environment)
    with pytest.raises(StageError, match=r"^start: it was not done within 1 s; the process was ended \(log: "):
        run_job("job", {"within_s": 60, "after_s": 0}, log=tmp_path / "x.log", environment=environment)


def test_a_workers_temporary_files_and_semaphores_go_with_it(verbs, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    environment = verbs(
        "import multiprocessing, os, tempfile\n@verb\ndef job(report):\n"
        "    global semaphore\n    semaphore = multiprocessing.get_context('spawn').Lock()\n"
        "    tempfile.mkdtemp()\n    return [tempfile.gettempdir(), semaphore._semlock.name]\n"
    )
    with Worker(tmp_path / "x.log", environment) as worker:
        folder, semaphore = worker.do("job", {})
        assert Path(folder).parent == tmp_path and len(list(Path(folder).iterdir())) == 1
        assert semaphore.startswith(f"/{Path(folder).name}-")
        shared = Path("/dev/shm", f"sem.{semaphore.removeprefix('/')}")
        assert shared.exists() and shared not in orphaned_semaphores()
    assert not Path(folder).exists()
    assert not shared.exists()


def test_a_semaphore_that_no_process_has_is_an_orphan(tmp_path):
    """Whatever else runs on the machine meanwhile."""
    code = (
        "import multiprocessing; multiprocessing.current_process()._config['semprefix'] = '/layoutlab-w-test'\n"
        "lock = multiprocessing.get_context('spawn').Lock(); print(lock._semlock.name, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        shared = Path("/dev/shm", f"sem.{other.stdout.readline().decode().strip().removeprefix('/')}")
        assert shared.exists() and shared not in orphaned_semaphores()
        # Python's own tracker of resources would remove it.
        for child in psutil.Process(other.pid).children():
            child.kill()
        other.kill()
    assert shared in orphaned_semaphores()
    shared.unlink()
    assert shared not in orphaned_semaphores()


def test_what_a_killed_parent_left_is_removed_by_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_NEW_S", 0.0)
    code = (
        f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}\n"
        "from layoutlab.scratch import Scratch; print(Scratch().folder, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().decode().strip())
        scratch.remove_abandoned()
        assert left.exists()
        other.kill()
    scratch.remove_abandoned()
    assert not left.exists()


def test_an_error_of_ours_arrives_as_what_it_was(verbs, tmp_path):
    environment = verbs(
        "from layoutlab.errors import ModelError, WrongOutputs\n"
        "@verb\ndef model(report):\n    raise ModelError('no such model')\n"
        "@verb\ndef wrong(report):\n    raise WrongOutputs('check', 'all zeros')\n"
    )
    with pytest.raises(ModelError, match=r"^no such model$"):
        run_job("model", {}, log=tmp_path / "x.log", environment=environment)
    with pytest.raises(errors.WrongOutputs) as caught:
        run_job("wrong", {}, log=tmp_path / "x.log", environment=environment)
    assert (caught.value.stage, caught.value.cause, caught.value.exit_code) == ("check", "all zeros", 4)


def test_the_processes_a_worker_started_end_with_it(verbs, tmp_path):
    environment = verbs(
        "import subprocess, sys\n@verb\ndef job(report):\n"
        "    return subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)']).pid\n"
    )
    child = run_job("job", {}, log=tmp_path / "x.log", environment=environment)
    assert gone(child)


def test_a_worker_ends_when_its_parent_is_killed(verbs, tmp_path):
    environment = verbs(
        "import os, time\n@verb\ndef job(report):\n    report('stage', name=str(os.getpid()))\n    time.sleep(300)\n"
    )
    code = (
        "from pathlib import Path\nfrom layoutlab.process import Worker, run_job\n"
        f"run_job('job', {{}}, log=Path({str(tmp_path / 'x.log')!r}), "
        "on_event=lambda event: print(event['name'], flush=True))"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert gone(worker)


def gone(pid: int) -> bool:
    """Whether the process ends within ten seconds."""
    for _ in range(100):
        status = Path(f"/proc/{pid}/status")
        if not status.exists() or "State:\tZ" in status.read_text():
            return True
        time.sleep(0.1)
    return False


def test_every_verb_says_what_it_does():
    assert all(function.__doc__ for function in jobs.VERBS.values())


def test_a_worker_does_one_job_after_the_other_and_keeps_what_it_holds(verbs, tmp_path):
    environment = verbs(
        "held = []\n@verb\ndef hold(report, what):\n    held.append(what)\n    return held\n"
        "@verb\ndef fail(report):\n    raise ValueError('not this one')\n"
    )
    with Worker(tmp_path / "x.log", environment) as worker:
        assert worker.do("hold", {"what": 1}) == [1]
        with pytest.raises(StageError, match="not this one"):
            worker.do("fail", {})
        assert worker.do("hold", {"what": 2}) == [1, 2]


def test_a_worker_that_is_gone_says_so_each_time(verbs, tmp_path):
    environment = verbs("import os\n@verb\ndef crash(report):\n    os.abort()\n")
    with Worker(tmp_path / "x.log", environment) as worker:
        for _ in range(2):
            with pytest.raises(StageError) as caught:
                worker.do("crash", {})
            assert caught.value.cause == "the process was killed by SIGABRT"


def test_memory_without_end_is_ended(verbs, tmp_path):
    """In the worker itself, and in a process that it started."""
    allocate = "held = [bytearray(b'x') * (32 << 20) for _ in iter(int, 1)]"
    child = f"subprocess.run([sys.executable, '-c', {allocate!r}])"
    environment = verbs(
        "import subprocess, sys\n"
        f"@verb\ndef itself(report):\n    report('stage', name='tune')\n    {allocate}\n"
        f"@verb\ndef another(report):\n    report('stage', name='tune')\n    {child}\n"
    )
    for verb in ("itself", "another"):
        with pytest.raises(StageError) as caught:
            run_job(verb, {}, log=tmp_path / "x.log", environment=environment, memory_bytes=300 << 20, timeout_s=60)
        assert (caught.value.stage, caught.value.cause) == (
            "tune",
            "it took more than 0.3 GiB of memory, its limit here; the process was ended",
        )


def test_memory_that_is_shared_counts_once(verbs, tmp_path):
    environment = verbs(
        "import os, time\n@verb\ndef job(report):\n    held = bytearray(b'x') * (150 << 20)\n"
        "    children = [os.fork() for _ in range(3)]\n    if 0 in children:\n        time.sleep(20)\n"
        "    time.sleep(2.6)\n    return len(held)\n"
    )
    found = run_job("job", {}, log=tmp_path / "x.log", environment=environment, memory_bytes=300 << 20)
    assert found == 150 << 20


def test_the_limit_of_memory_can_be_chosen(monkeypatch):
    monkeypatch.delenv("LAYOUTLAB_MEMORY_GIB", raising=False)
    assert 0 < machine_limit_bytes() <= 0.75 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    monkeypatch.setenv("LAYOUTLAB_MEMORY_GIB", "0.5")
    assert machine_limit_bytes() == 1 << 29


@pytest.mark.parametrize("text", ["much", "0", "-1", "nan", "inf", "1e-30"])
def test_a_limit_of_memory_that_is_none(monkeypatch, text):
    monkeypatch.setenv("LAYOUTLAB_MEMORY_GIB", text)
    with pytest.raises(UsageError) as caught:
        machine_limit_bytes()
    message = f"LAYOUTLAB_MEMORY_GIB: expected a number of GiB above 0, such as 8 or 0.5, found {text!r}"
    assert str(caught.value) == message
