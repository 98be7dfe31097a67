"""The address that an agent or a tracker listens on: loopback, unless everyone on the network is let in on purpose."""

from __future__ import annotations

import argparse
import ipaddress
import socket
import sys

from layoutlab.errors import DeviceError, UsageError

# A peer that is silent is asked for a sign of life after 10 s, and is gone after 30: unplugged, asleep, out of reach.
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}

# So many may wait at the door: clients and devices that come at once, and strangers before them.
BACKLOG = 128


def add_listen_options(parser: argparse.ArgumentParser) -> None:
    """--host, --port and --allow-lan."""
    parser.add_argument("--host", default="127.0.0.1", help="address to bind to (default: %(default)s)")
    parser.add_argument("--port", type=int, default=9190, help="port, 0 for any free one (default: %(default)s)")
    parser.add_argument(
        "--allow-lan", action="store_true", help="allow an address that other machines reach (they can run any code)"
    )


def open_listener(host: str, port: int, allow_lan: bool, danger: str) -> socket.socket:
    """A socket bound to the address, not listening yet. `danger` says what whoever connects can do.

    Raises UsageError when the address is not loopback and `allow_lan` is not said, DeviceError when it cannot be had.
    """
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)
        if not all(ipaddress.ip_address(address[0]).is_loopback for *_, address in found):
            _warn_or_refuse(host or "0.0.0.0", port, allow_lan, danger)
        # `localhost` may mean two addresses; clients try this one.
        family, *_, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _keep_alive(listener)
        listener.bind(address)
    # Of getaddrinfo, a port beyond 65535.
    except (OSError, OverflowError) as error:
        raise DeviceError(
            f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}. "
            "Choose another address with --host and --port; port 0 takes any free one"
        ) from error
    return listener


def _warn_or_refuse(host: str, port: int, allow_lan: bool, danger: str) -> None:
    if allow_lan:
        print(f"warning: {host} is open to other machines: {danger}", file=sys.stderr, flush=True)
        return
    shown = port or "PORT"
    raise UsageError(
        f"{host} is open to other machines, and {danger}. Keep 127.0.0.1 and forward the port, with "
        f"`ssh -L {shown}:127.0.0.1:{shown} DEVICE`, `adb forward tcp:{shown} tcp:{shown}` or "
        f"`adb reverse tcp:{shown} tcp:{shown}`; or say --allow-lan where everyone on the network may do that"
    )


def _keep_alive(listener: socket.socket) -> None:
    """Let connections notice that their peer is gone; those that a listener accepts take this over from it (Linux)."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
