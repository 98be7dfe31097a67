"""The greeting of TVM RPC, from the side that is greeted."""

from __future__ import annotations

import socket
import struct

# Whoever connects and then says nothing, or says something else than a TVM client does, is gone after this.
_HANDSHAKE_S = 10.0
_LONGEST_KEY = 1024


def shake_hands(connection: socket.socket, expected: str, key: str) -> float | None:
    """Let a client in that names the key `expected`; it is told `key`.

    Returns the seconds after which it wants its session to be ended, None for never. RuntimeError with anyone else.
    """
    from tvm.rpc import base

    connection.settimeout(_HANDSHAKE_S)
    if _receive_int(connection) != base.RPC_MAGIC:
        raise RuntimeError("not a TVM RPC client")
    length = _receive_int(connection)
    if not 0 < length <= _LONGEST_KEY:
        raise RuntimeError(f"a key of {length} bytes")
    client, *options = base.recvall(connection, length).decode("utf-8", "replace").split()
    if client != f"client:{expected}":
        connection.sendall(struct.pack("<i", base.RPC_CODE_MISMATCH))
        raise RuntimeError("a client with another key")
    answer = f"server:{key}".encode()
    connection.sendall(struct.pack("<ii", base.RPC_CODE_SUCCESS, len(answer)) + answer)
    connection.settimeout(None)
    return _timeout_s(options)


def _receive_int(connection: socket.socket) -> int:
    from tvm.rpc import base

    return int(struct.unpack("<i", base.recvall(connection, 4))[0])


def _timeout_s(options: list[str]) -> float | None:
    for option in options:
        name, _, value = option.partition("=")
        if name == "-timeout":
            try:
                return float(value)
            except ValueError as error:
                raise RuntimeError(f"a client with the timeout {value!r}") from error
    return None
