"""The agent: one process on a device that serves TVM RPC, runs TFLite there, and tells the machine's state.

It is TVM's own RPC server with one function more, `layoutlab.agent.do(verb, arguments)`, which does the verbs below
in the session's folder; JSON text goes in and comes out. So whatever speaks TVM RPC can use the device, and
layoutlab finds the baseline and the conditions behind the same connection. Each session is a process of its own:
a crash costs one session.

Like every TVM RPC server it runs whatever a client sends. It binds to loopback unless told otherwise.
"""

from __future__ import annotations

import argparse
import os
import platform
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from layoutlab.errors import EXIT_OK, DeviceError
from layoutlab.session_worker import SessionWorker, Verbs, answer, die_with_parent

DO = "layoutlab.agent.do"
DESCRIPTION = (
    "Serve this device: TVM RPC, the TFLite baseline, and the machine's conditions. "
    "Whoever can connect can run any code here."
)

# Whoever connects and then says nothing, or says something else than a TVM client does, is gone after this.
_HANDSHAKE_S = 10.0
_LONGEST_KEY = 1024


def describe() -> dict[str, Any]:
    """What this device is, what is installed on it, and its conditions now."""
    from layoutlab.baseline.tflite import versions
    from layoutlab.measure.conditions import cpu_name, read_conditions

    return {
        "machine": platform.machine(),
        "cpu": cpu_name(),
        "python": platform.python_version(),
        "versions": versions(),
        "conditions": read_conditions(),
    }


def _verbs() -> Verbs:
    # Everything that verbs import is imported here, once: what sessions import by themselves takes time in each of
    # them, and leaves memory behind that differs from one to the other.
    import ai_edge_litert.interpreter  # noqa: F401
    import tvm.runtime.vm  # noqa: F401

    from layoutlab.device import on_device
    from layoutlab.device.function_times import time_functions
    from layoutlab.measure import conditions  # noqa: F401

    return {
        "describe": describe,
        "compute_outputs": on_device.compute_outputs,
        "take_samples": on_device.take_samples,
        "time_functions": time_functions,
        "count_inference": on_device.count_inference,
        "count_candidate": on_device.count_candidate,
    }


def serve(host: str, port: int, tracker: tuple[str, int] | None, key: str, announce: Callable[[int], None]) -> None:
    """Serve until the process is ended; `announce` gets the port once connections are taken (0: any free one)."""
    from tvm.rpc.server import _listen_loop
    from tvm_ffi import register_global_func

    verbs = _verbs()

    @register_global_func(DO)
    def do(verb: str, arguments: str) -> str:
        if _session_worker is None:
            return answer(verbs, str(verb), str(arguments))
        return _session_worker.do(str(verb), str(arguments))

    # `tvm.rpc.Server` starts its loop in a process that would not know the function above (and that a program
    # under qemu cannot start at all).
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(1)
    bound = listener.getsockname()[1]
    announce(bound)
    if tracker is None:
        _serve_one_by_one(listener, key, verbs)
    while True:
        try:
            _listen_loop(listener, bound, key, tracker, None, None)
        except RuntimeError as error:
            # How TVM's loop ends when the process of one session crashed; the next must not pay for it.
            print(error, file=sys.stderr, flush=True)


def _serve_one_by_one(listener: socket.socket, key: str, verbs: Verbs) -> NoReturn:
    """Sessions one after the other, each in a child of this process, which itself does nothing but fork.

    So every session begins with the same memory, and what is counted in it does not depend on the sessions before.
    """
    # What is done for the first time leaves traces in the allocators; before the first session it was all done.
    for _ in range(2):
        select.select([listener], [], [], 0)
        _in_child(_do_nothing, listener, key, verbs)
    while True:
        select.select([listener], [], [], None)
        _in_child(_serve_session, listener, key, verbs)


def _do_nothing(listener: socket.socket, key: str, verbs: Verbs) -> None:
    pass


def _in_child(
    work: Callable[[socket.socket, str, Verbs], None], listener: socket.socket, key: str, verbs: Verbs
) -> None:
    """Do the work in a forked process, and wait for its end."""
    child = os.fork()
    if child == 0:
        # A session that hangs in native code is ended by SIGTERM: no handler of Python's would ever run there.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with_parent()
        status = 1
        try:
            work(listener, key, verbs)
            status = 0
        except (OSError, RuntimeError) as error:
            print(error, file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    os.waitpid(child, 0)


# What does the verbs of this process' session; the session's processes are forked with it.
_session_worker: SessionWorker | None = None


def _serve_session(listener: socket.socket, key: str, verbs: Verbs) -> None:
    """Take a connection and serve it until the client is gone."""
    from tvm.rpc.server import _parse_server_opt, _serving

    global _session_worker
    _session_worker = SessionWorker(verbs)
    try:
        connection, address = listener.accept()
        listener.close()
        options = _shake_hands(connection, key)
        _serving(connection, address, _parse_server_opt(options), None)
    finally:
        _session_worker.end()


def _shake_hands(connection: socket.socket, key: str) -> list[str]:
    """TVM's handshake with a client that knows `key`; returns what else it said. RuntimeError with anyone else."""
    from tvm.rpc import base

    connection.settimeout(_HANDSHAKE_S)
    if _receive_int(connection) != base.RPC_MAGIC:
        raise RuntimeError("not a TVM RPC client")
    length = _receive_int(connection)
    if not 0 < length <= _LONGEST_KEY:
        raise RuntimeError(f"a key of {length} bytes")
    client, *options = base.recvall(connection, length).decode("utf-8", "replace").split()
    if client != f"client:{key}":
        connection.sendall(struct.pack("<i", base.RPC_CODE_MISMATCH))
        raise RuntimeError("a client with another key")
    answer = f"server:{key}".encode()
    connection.sendall(struct.pack("<ii", base.RPC_CODE_SUCCESS, len(answer)) + answer)
    connection.settimeout(None)
    return options


def _receive_int(connection: socket.socket) -> int:
    from tvm.rpc import base

    return int(struct.unpack("<i", base.recvall(connection, 4))[0])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `layoutlab agent`."""
    parser.add_argument("--host", default="127.0.0.1", help="address to bind to (default: %(default)s)")
    parser.add_argument("--port", type=int, default=9190, help="port, 0 for any free one (default: %(default)s)")
    parser.add_argument("--tracker", metavar="HOST:PORT", type=_address, help="register with this RPC tracker")
    parser.add_argument("--key", default="", help="the device's key, which clients have to name")


def run(options: argparse.Namespace) -> int:
    """Serve; the first line on standard output says where. Raises DeviceError when the address cannot be had."""
    # TVM then loads its runtime alone: no compiler is needed here, and on slow devices it takes long to load.
    os.environ.setdefault("TVM_USE_RUNTIME_LIB", "1")

    def announce(port: int) -> None:
        print(f"layoutlab agent listens on {options.host}:{port}", flush=True)

    try:
        serve(options.host, options.port, options.tracker, options.key, announce)
    except OSError as error:
        raise DeviceError(
            f"cannot listen on {options.host}:{options.port}: {error.strerror}. "
            "Choose another address with --host and --port; port 0 takes any free one"
        ) from error
    return EXIT_OK


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form host:port")
    return host, int(port)


if __name__ == "__main__":
    # How it is started on a device that has no more than this file needs; elsewhere it is `layoutlab agent`.
    _parser = argparse.ArgumentParser(prog="layoutlab agent", description=DESCRIPTION)
    add_arguments(_parser)
    sys.exit(run(_parser.parse_args()))
