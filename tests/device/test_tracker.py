"""A tracker and the agents that register with it, as processes; each of them may end at any time."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from .agents import LAYOUTLAB, Remote, library, serving, wait_until

KEY = "board"
TRACKER = [*LAYOUTLAB, "tracker", "--port"]


@contextmanager
def tracked(port: int):
    """A connection with the tracker, as TVM's clients have it."""
    from tvm import rpc

    session = rpc.connect_tracker("127.0.0.1", port)
    try:
        yield session
    finally:
        session.close()


def free(port: int) -> int:
    """How many agents wait for a client."""
    try:
        with tracked(port) as tracker:
            return int(tracker.summary()["queue_info"].get(KEY, {"free": 0})["free"])
    except OSError:
        return 0


def lease(port: int) -> Remote:
    with tracked(port) as tracker:
        return Remote(tracker.request(KEY, session_timeout=60))


def agent(stack: ExitStack, port: int, *options: str, log=subprocess.DEVNULL) -> subprocess.Popen[str]:
    """An agent that registers with the tracker at `port`."""
    command = [*LAYOUTLAB, "agent", "--port", "0", "--tracker", f"127.0.0.1:{port}", "--key", KEY, *options]
    process, _ = stack.enter_context(serving(command, "agent", stderr=log))
    return process


@pytest.fixture
def log() -> Iterator[Path]:
    with tempfile.NamedTemporaryFile() as file:
        yield Path(file.name)


@pytest.fixture(scope="module")
def two_agents() -> Iterator[int]:
    """A tracker's port, with two agents of one key."""
    with ExitStack() as stack:
        _, port = stack.enter_context(serving([*TRACKER, "0"], "tracker"))
        for _ in range(2):
            agent(stack, port)
        wait_until(lambda: free(port) == 2, "both agents register")
        yield port


def test_agents_of_one_key_are_given_out_one_by_one_and_taken_back(two_agents):
    first, second = lease(two_agents), lease(two_agents)
    assert free(two_agents) == 0
    assert first.ask("describe")["id"] != second.ask("describe")["id"]
    first.close()
    second.close()
    wait_until(lambda: free(two_agents) == 2, "both agents register again after their sessions")


def test_a_crash_of_a_session_gives_the_agent_back(two_agents, tmp_path):
    """The client's own doing, not a verb's: it loads a library into the process that speaks with it."""
    remote = lease(two_agents)
    remote.session.upload(str(library(tmp_path, "abort();")), "crash.so")
    with pytest.raises(Exception, match=r"."):
        remote.session.load_module("crash.so")
    remote.close()
    wait_until(lambda: free(two_agents) == 2, "the agent registers again after a crash")


def test_a_client_that_takes_an_agent_and_does_not_come_loses_it(two_agents):
    from tvm.rpc import base

    with socket.create_connection(("127.0.0.1", two_agents)) as client:
        client.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
        base.recvall(client, 4)
        base.sendjson(client, [base.TrackerCode.REQUEST, KEY, "", 1])
        code, (host, port, key) = base.recvjson(client)
    assert (code, host, key.startswith(KEY)) == (base.TrackerCode.SUCCESS, "127.0.0.1", True)
    # A stranger meanwhile changes nothing.
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
    wait_until(lambda: free(two_agents) == 2, "the agent is offered again")


def test_agents_come_back_to_a_tracker_that_was_restarted(log):
    with ExitStack() as stack:
        tracker, port = stack.enter_context(serving([*TRACKER, "0"], "tracker"))
        with open(log, "w") as file:
            agent(stack, port, log=file)
        wait_until(lambda: free(port) == 1, "the agent registers")
        tracker.send_signal(signal.SIGKILL)
        tracker.wait()
        wait_until(lambda: "does not answer" in log.read_text(), "the agent says that the tracker is away")
        tracker, _ = stack.enter_context(serving([*TRACKER, str(port)], "tracker", stderr=subprocess.PIPE))
        wait_until(lambda: free(port) == 1, "the agent registers again")
        remote = lease(port)
        assert remote.ask("describe")["machine"]
        remote.close()
        said = [line for line in log.read_text().splitlines() if "tracker" in line]
        tracker.send_signal(signal.SIGTERM)
        assert tracker.communicate(timeout=20)[1].endswith("interrupted\n")
        assert tracker.returncode == 130
    registered = f"registered with the tracker at 127.0.0.1:{port} as {KEY}"
    assert [said[0], said[-1], len(said)] == [registered, registered, 3]
    assert said[1].startswith(f"the tracker at 127.0.0.1:{port} does not answer (")


def test_a_tracker_forgets_an_agent_that_is_killed(two_agents):
    with ExitStack() as stack:
        third = agent(stack, two_agents, "--custom-address", "localhost")
        wait_until(lambda: free(two_agents) == 3, "the agent registers")
        with tracked(two_agents) as tracker:
            assert "localhost" in [server["addr"][0] for server in tracker.summary()["server_info"]]
        third.send_signal(signal.SIGKILL)
        third.wait()
        wait_until(lambda: free(two_agents) == 2, "the tracker forgets the agent")


def test_an_agent_tells_what_is_no_tracker(log):
    with socket.create_server(("127.0.0.1", 0)) as other, open(log, "w") as file, ExitStack() as stack:
        port = other.getsockname()[1]
        agent(stack, port, log=file)
        connection, _ = other.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400")
            wait_until(lambda: log.read_text() != "", "the agent says that there is no tracker")
    assert log.read_text().splitlines()[0] == (
        f"the tracker at 127.0.0.1:{port} does not answer (it is no TVM RPC tracker); it is asked again until it does"
    )
