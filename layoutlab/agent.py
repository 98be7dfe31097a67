"""The agent: one process on a device that serves TVM RPC, runs TFLite there, and tells the machine's state.

It is a TVM RPC server with one function more, `layoutlab.agent.do(verb, arguments[, timeout_s])`, which does the verbs
below in the session's folder; JSON text goes in and comes out. So whatever speaks TVM RPC can use the device, and
layoutlab finds the baseline and the conditions behind the same connection. Each session is a process of its own, and so
is each verb: a crash or a hang costs one verb, a client that disappears one session.

Like every TVM RPC server it runs whatever a client sends. It binds to loopback unless told otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import platform
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from layoutlab.errors import EXIT_OK, LayoutlabError, UsageError
from layoutlab.serving.listening import BACKLOG, add_listen_options, open_listener
from layoutlab.serving.registration import Registration
from layoutlab.serving.session import ask, serve_session
from layoutlab.session_worker import Verbs, die_with_parent

DO = "layoutlab.agent.do"
DESCRIPTION = (
    "Serve this device: TVM RPC, the TFLite baseline, and the machine's conditions. "
    "Whoever can connect can run any code here."
)
_DANGER = "whoever can connect can run any code here"


def describe(name: str) -> dict[str, Any]:
    """What the device called `name` is, what is installed on it, and its conditions now."""
    from layoutlab.baseline.tflite import versions
    from layoutlab.device.cpu import cpu_features, cpu_name
    from layoutlab.measure.conditions import read_conditions
    from layoutlab.measure.cores import usable_cores

    installed = versions()
    if not _has_litert():
        installed["ai-edge-litert"] = "not installed"
    return {
        "id": name,
        "machine": platform.machine(),
        "cpu": cpu_name(),
        "cores": len(usable_cores()),
        "features": cpu_features(),
        "python": platform.python_version(),
        "versions": installed,
        "conditions": read_conditions(),
    }


def _has_litert() -> bool:
    return importlib.util.find_spec("ai_edge_litert") is not None


def _verbs(name: str) -> Verbs:
    # Everything that verbs import is imported here, once: what sessions import by themselves takes time in each of
    # them, and leaves memory behind that differs from one to the other. A device can do without TFLite.
    if _has_litert():
        import ai_edge_litert.interpreter  # noqa: F401
    import tvm.runtime.vm  # noqa: F401

    from layoutlab.device import cpu, on_device  # noqa: F401
    from layoutlab.device.function_times import time_functions
    from layoutlab.device.kernel_times import time_kernels
    from layoutlab.measure import conditions, cores  # noqa: F401

    return {
        "describe": partial(describe, name),
        "choose_cores": cores.choose_cores,
        "compute_outputs": on_device.compute_outputs,
        "take_samples": on_device.take_samples,
        "measure_candidate": on_device.measure_candidate,
        "time_kernels": time_kernels,
        "time_functions": time_functions,
        "count_inference": on_device.count_inference,
        "count_candidate": on_device.count_candidate,
    }


def _serve(listener: socket.socket, options: argparse.Namespace, announce: Callable[[int], None]) -> NoReturn:
    """Serve until the process is ended; `announce` gets the port once connections are taken."""
    import tvm.rpc.server
    import tvm.support.utils  # noqa: F401
    from tvm_ffi import register_global_func

    # `tvm.rpc.Server` starts its loop in a process that would not know this function (and that a program under qemu
    # cannot start at all).
    register_global_func(DO, lambda verb, arguments, timeout_s=None: ask(str(verb), str(arguments), timeout_s))
    port = listener.getsockname()[1]
    verbs = _verbs(options.name or f"{socket.gethostname()}:{port}")
    listener.listen(BACKLOG)
    announce(port)
    if options.tracker is None:
        _serve_whoever_comes(listener, verbs, options.key)
    _serve_for_tracker(
        listener, verbs, options.key, Registration(options.tracker, options.key, port, options.custom_address)
    )


def _serve_whoever_comes(listener: socket.socket, verbs: Verbs, key: str) -> NoReturn:
    """Sessions one after the other, each in a child of this process, which itself does nothing but fork.

    So every session begins with the same memory, and what is counted in it does not depend on the sessions before.
    """
    session = partial(serve_session, listener, verbs, key, key)
    # What is done for the first time leaves traces in the allocators; before the first session it was all done.
    for _ in range(2):
        select.select([listener], [], [], 0)
        _in_child(_do_nothing)
    while True:
        select.select([listener], [], [], None)
        _in_child(session)


def _serve_for_tracker(listener: socket.socket, verbs: Verbs, key: str, registration: Registration) -> NoReturn:
    """Sessions of the clients that a tracker sends, one after the other."""
    while True:
        match_key = registration.wait_for_client(listener)

        def session(expected: str = match_key) -> None:
            # The tracker shall see it when this agent ends, whatever its session still does.
            registration.close()
            serve_session(listener, verbs, expected, key)

        # After a stranger the key is still that of the client which the tracker will send.
        if _in_child(session):
            registration.withdraw()


def _do_nothing() -> None:
    pass


def _in_child(work: Callable[[], None]) -> bool:
    """Do the work in a forked process and wait for its end; whether it came to its own end."""
    child = os.fork()
    if child == 0:
        # Ends with this process, and then has its own children to end.
        signal.signal(signal.SIGTERM, _leave)
        die_with_parent(signal.SIGTERM)
        status = 1
        try:
            work()
            status = 0
        except (OSError, RuntimeError) as error:
            print(error, file=sys.stderr, flush=True)
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def _leave(*_: Any) -> NoReturn:
    raise SystemExit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `layoutlab agent`."""
    add_listen_options(parser)
    parser.add_argument("--tracker", metavar="HOST:PORT", type=_address, help="register with this RPC tracker")
    parser.add_argument(
        "--key", default="", help="the device's key, which clients have to name; with --tracker its kind of device"
    )
    parser.add_argument(
        "--custom-address",
        metavar="HOST",
        help="with --tracker: where clients reach this agent when it sits behind a router or a forwarded port",
    )
    parser.add_argument("--name", help="what this device is called (default: its host's name and the port)")


def run(options: argparse.Namespace) -> int:
    """Serve; the first line on standard output says where.

    Raises UsageError for options that do not go together, DeviceError when the address cannot be had.
    """
    _check(options)
    # TVM then loads its runtime alone: no compiler is needed here, and on slow devices it takes long to load.
    os.environ.setdefault("TVM_USE_RUNTIME_LIB", "1")
    listener = open_listener(options.host, options.port, options.allow_lan, _DANGER)

    def announce(port: int) -> None:
        print(f"layoutlab agent listens on {options.host}:{port}", flush=True)

    with contextlib.closing(listener):
        _serve(listener, options, announce)
    return EXIT_OK


def _check(options: argparse.Namespace) -> None:
    if options.tracker and not options.key:
        raise UsageError("--tracker needs --key KEY as well: the name under which clients ask for this kind of device")
    if options.custom_address and not options.tracker:
        raise UsageError("--custom-address is what a tracker tells its clients: it needs --tracker HOST:PORT as well")
    if any(map(str.isspace, options.key)):
        raise UsageError(f"--key {options.key!r} has a blank: a key is one word")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form host:port")
    return host.strip("[]"), int(port)


if __name__ == "__main__":
    # How it is started on a device that has no more than this file needs; elsewhere it is `layoutlab agent`.
    _parser = argparse.ArgumentParser(prog="layoutlab agent", description=DESCRIPTION)
    add_arguments(_parser)
    try:
        sys.exit(run(_parser.parse_args()))
    except LayoutlabError as _error:
        print(f"error: {_error}", file=sys.stderr)
        sys.exit(_error.exit_code)
