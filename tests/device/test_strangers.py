"""Who connects to an agent or a tracker and is no client: garbage, the slow and the silent keep nobody out."""

from __future__ import annotations

import resource
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from .agents import LAYOUTLAB, serving, session, wait_until
from .test_agent_sessions import leased
from .test_tracker import KEY, agent, free

GARBAGE = (b"", b"\0", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\xff" * 4096, b"\x21\x2f\xf2\x0f\xff\xff\xff\x7f")


@contextmanager
def strangers(port: int, count: int, said: tuple[bytes, ...] = GARBAGE) -> Iterator[list[socket.socket]]:
    """So many connections, each of which says something that is no greeting, and stays."""
    with ExitStack() as stack:
        found = []
        for number in range(count):
            stranger = stack.enter_context(socket.socket())
            stranger.setblocking(False)
            stranger.connect_ex(("127.0.0.1", port))
            found.append(stranger)
            time.sleep(0)
            try:
                stranger.send(said[number % len(said)])
            except OSError:  # still connecting, or sent away
                continue
        yield found


@contextmanager
def one_byte_a_second(port: int) -> Iterator[None]:
    """Somebody whose greeting is right as far as it goes, and takes hours."""
    from tvm.rpc import base

    ended = threading.Event()

    def talk() -> None:
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            for byte in struct.pack("<ii", base.RPC_MAGIC, 1000) + b"client:" + b"x" * 993:
                try:
                    stranger.send(bytes([byte]))
                except OSError:
                    return
                if ended.wait(1):
                    return

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def require_loopback(port: int) -> None:
    """Every address 127.x.y.z is this machine: a socket that listens on all addresses would answer here as well."""
    with socket.socket() as other:
        assert other.connect_ex(("127.0.0.2", port)) != 0


@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_client_does_not_wait_for_strangers(count):
    with serving([*LAYOUTLAB, "agent", "--port", "0"], "agent") as (process, port), one_byte_a_second(port):
        require_loopback(port)
        for _ in range(2):
            with strangers(port, count), session(port) as remote:
                assert remote.ask("describe")["machine"]
                # A session is under way; those who come meanwhile do not reach it.
                with strangers(port, count):
                    assert remote.ask("describe")["machine"]
        assert process.poll() is None


def test_who_takes_too_long_is_sent_away_whatever_he_says(monkeypatch):
    """One byte a second is a sign of life each second, and still no greeting within the time for one."""
    from layoutlab.serving import handshake

    monkeypatch.setattr(handshake, "_HANDSHAKE_S", 1.5)
    with socket.create_server(("127.0.0.1", 0)) as listener, one_byte_a_second(listener.getsockname()[1]):
        wait_until(lambda: bool(_waiting(listener)), "the stranger connects")
        with pytest.raises(RuntimeError, match=r"^no greeting within 2 s$"):
            handshake.greet(listener, "", "")


def _waiting(listener: socket.socket) -> list[socket.socket]:
    import select

    return select.select([listener], [], [], 0)[0]


def few_files() -> None:
    """For `preexec_fn`: what a process gets where nobody thought of thousands of connections."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


@pytest.mark.parametrize(("count", "limit"), [(100, few_files), pytest.param(2000, None, marks=pytest.mark.slow)])
def test_a_tracker_serves_when_strangers_take_all_its_files(count, limit):
    with ExitStack() as stack:
        tracker, port = stack.enter_context(
            serving([*LAYOUTLAB, "tracker", "--port", "0"], "tracker", preexec_fn=limit)
        )
        require_loopback(port)
        agent(stack, port)
        wait_until(lambda: free(port) == 1, "the agent registers")
        stack.enter_context(one_byte_a_second(port))
        stack.enter_context(strangers(port, count, (b"", *GARBAGE)))
        with leased(port, KEY) as remote:
            assert remote.ask("describe")["machine"]
        wait_until(lambda: free(port) == 1, "the agent is offered again")
        assert tracker.poll() is None
        tracker.send_signal(signal.SIGTERM)
        assert tracker.wait(timeout=20) == 130
