"""The tracker: where agents of several devices register, and clients ask for one of a kind. It speaks as TVM's own."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import os
import secrets

from layoutlab.errors import EXIT_OK, DeviceError
from layoutlab.serving.listening import BACKLOG, add_listen_options, open_listener

DESCRIPTION = (
    "Bring agents and clients together: TVM's RPC tracker. Agents register with `layoutlab agent --tracker HOST:PORT "
    "--key KEY`. Whoever can connect can run any code on their devices."
)
_DANGER = "whoever can connect can run any code on the devices that register here"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `layoutlab tracker`."""
    add_listen_options(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until the process is ended; the first line on standard output says where.

    Raises DeviceError when tornado is missing, and as `open_listener` does.
    """
    if importlib.util.find_spec("tornado") is None:
        raise DeviceError("TVM's tracker needs the package tornado. Install it: pip install 'layoutlab[rpc]'")
    listener = open_listener(options.host, options.port, options.allow_lan, _DANGER)
    os.environ.setdefault("TVM_USE_RUNTIME_LIB", "1")
    from layoutlab.serving.tracking import Handler

    with contextlib.closing(listener):
        # TVM's handler takes the loop of this thread.
        asyncio.set_event_loop(asyncio.new_event_loop())
        # Whoever knows the key can stop the tracker over the network; nobody does.
        handler = Handler(listener, secrets.token_hex())
        listener.listen(BACKLOG)
        print(f"layoutlab tracker listens on {options.host}:{listener.getsockname()[1]}", flush=True)
        handler.run()
    return EXIT_OK
