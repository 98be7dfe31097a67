"""What a verb, a session or a client may do to an agent: nothing that outlives it, with a tracker and without one."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest

from .agents import LAYOUTLAB, Remote, are_gone, hanging, library, running, serving, session, wait_until

KEY = "pixel"
Connect = Callable[..., AbstractContextManager[Remote]]

# What a client of its own process does; its arguments are a port and a library.
CLIENT = """
import json, sys
from tvm import rpc
from layoutlab.agent import DO
arguments = {"library": sys.argv[2], "arguments": [], "marks": ""}
rpc.connect("127.0.0.1", int(sys.argv[1])).get_function(DO)("count_candidate", json.dumps(arguments))
"""


@contextmanager
def leased(tracker: int, key: str = KEY, timeout_s: int = 60) -> Iterator[Remote]:
    """A session that a tracker gives."""
    from tvm import rpc

    tracked = rpc.connect_tracker("127.0.0.1", tracker)
    remote = Remote(tracked.request(key, session_timeout=timeout_s))
    try:
        yield remote
    finally:
        remote.close()
        tracked.close()


@pytest.fixture(scope="module")
def direct_port() -> Iterator[int]:
    with running() as port:
        yield port


@pytest.fixture(scope="module")
def tracker_port() -> Iterator[int]:
    """A tracker with one agent."""
    with (
        serving([*LAYOUTLAB, "tracker", "--port", "0"], "tracker") as (_, port),
        running("--tracker", f"127.0.0.1:{port}", "--key", KEY, "--name", "the pixel"),
    ):
        yield port


@pytest.fixture(params=["direct", "tracked"])
def connect(request: pytest.FixtureRequest) -> Connect:
    if request.param == "direct":
        return partial(session, request.getfixturevalue("direct_port"))
    return partial(leased, request.getfixturevalue("tracker_port"))


def test_a_verb_costs_itself_only(connect, tmp_path):
    crash = library(tmp_path, "raise(SIGSEGV);")
    stop = library(tmp_path, "_exit(3);", "stop")
    hang, pids = hanging(tmp_path)
    with connect() as remote:
        assert remote.load(crash) == {"error": "crashed its process on the device (SIGSEGV)"}
        assert remote.load(stop) == {"error": "crashed its process on the device (exit code 3)"}
        # A file is there for the verbs after it.
        remote.session.upload(bytearray(b"x"), "kept")
        # The limit is a number or text, as it comes.
        for limit, said in ((0.2, "0.2"), ("0.3", "0.3")):
            pids.unlink(missing_ok=True)
            assert remote.load(hang, limit) == {"error": f"took longer than {said} s"}
            wait_until(lambda: are_gone(pids), "the processes of a verb end with it")
        # A limit may be longer than any system call can wait.
        assert remote.ask("describe", 1e12)["machine"]
        assert bytes(remote.session.download("kept")) == b"x"


def test_what_cannot_be_asked_for(direct_port):
    with session(direct_port) as remote:
        error = remote.ask("describe", "soon")["error"]
        assert error == "the time limit of a verb is 'soon': expected seconds above 0"
        error = remote.ask("brew")["error"]
        assert error.startswith(
            'the agent on the device has no verb "brew": it has choose_cores, compute_outputs, count_'
        )
        assert remote.ask("describe", -1) == {"error": "the time limit of a verb is '-1': expected seconds above 0"}


def test_a_crashed_verb_is_noticed_when_its_child_lives_on(direct_port, tmp_path):
    path = library(tmp_path, "if (fork() == 0) for (;;) pause(); abort();")
    with session(direct_port) as remote:
        assert remote.load(path, 20) == {"error": "crashed its process on the device (SIGABRT)"}


def test_a_session_whose_time_is_up_ends_with_its_verb(connect, tmp_path):
    hang, pids = hanging(tmp_path)
    with connect(timeout_s=1) as remote, pytest.raises(Exception, match="SessionTimeoutError"):
        remote.load(hang)
    wait_until(lambda: are_gone(pids), "the verb of a session ends with it")
    with connect() as remote:
        assert remote.ask("describe")["machine"]


def test_a_client_that_is_killed_frees_the_device(direct_port, tmp_path):
    hang, pids = hanging(tmp_path)
    client = subprocess.Popen([sys.executable, "-c", CLIENT, str(direct_port), str(hang)])
    wait_until(pids.exists, "the client's verb starts")
    client.send_signal(signal.SIGKILL)
    client.wait()
    with session(direct_port) as remote:
        assert remote.ask("describe")["machine"]
    wait_until(lambda: are_gone(pids), "the verb of a client that is gone ends")


def test_a_client_that_is_silent_is_asked_for_a_sign_of_life(direct_port):
    """The kernel does that; here it is seen to have the order, without waiting for a cable to be pulled."""
    with session(direct_port):
        wait_until(lambda: _keepalive_is_due(direct_port), "the keepalive timer runs, and for 10 s at most")


def _keepalive_is_due(port: int) -> bool:
    """Whether the kernel will ask the peer of each connection to this port within 10 s."""
    timers = [fields[5].split(":") for fields in _connections() if fields[1].endswith(f":{port:04X}")]
    # Timer 2 is keepalive (a delayed acknowledgement is another, before it); when it is due in hundredths of a second.
    return bool(timers) and all(kind == "02" and int(due, 16) <= 1000 for kind, due in timers)


def _connections() -> list[list[str]]:
    """The fields of each established TCP connection of this machine (see Linux' proc_net_tcp.rst)."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return [fields for fields in map(str.split, lines) if fields[3] == "01"]


def test_an_agent_that_is_killed_leaves_nothing_behind(tmp_path):
    hang, pids = hanging(tmp_path)
    with serving([*LAYOUTLAB, "agent", "--port", "0"], "agent") as (agent, port):
        client = subprocess.Popen([sys.executable, "-c", CLIENT, str(port), str(hang)], stderr=subprocess.DEVNULL)
        wait_until(pids.exists, "the client's verb starts")
        agent.send_signal(signal.SIGKILL)
        assert client.wait(timeout=20) == 1
    wait_until(lambda: are_gone(pids), "what an agent started ends with it")


def test_tracked_agents_have_names(tracker_port):
    with leased(tracker_port) as remote:
        assert remote.ask("describe")["id"] == "the pixel"
