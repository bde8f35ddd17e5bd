"""Bounds for slow clients of the gRPC port: gRPC's own bounds on time, and a bound on the number of connections.

gRPC can only refuse new connections beyond a number. Here a new connection is accepted, and the one that has been
silent for longest is closed. gRPC does not expose its sockets, so they are searched among the process's files.
"""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_OPEN_FILES: Final = Path("/proc/self/fd")
_LAST_RECEIVED: Final = slice(52, 56)
"""The bytes of Linux' struct tcp_info with the milliseconds since data was received."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GrpcBounds:
    """Bounds for the clients of the gRPC port."""

    handshake_seconds: float = 10.0
    """Time for TLS and HTTP/2's first frames, from the connection on."""
    message_seconds: float = 30.0
    """Time for a call's message, from its headers on."""
    answer_seconds: float = 10.0
    """Time in which a client must answer a ping or accept data."""
    idle_seconds: float = 300.0
    """Time for which a connection stays open without a call."""
    age_seconds: float = 600.0
    """Age from which a connection accepts no new calls."""
    grace_seconds: float = 120.0
    """Time that its last calls have then, slow reading included."""
    calls: int = 256
    """The most concurrent calls on one connection."""
    connections: int = 1024
    """The most connections; beyond, the one that has been silent for longest is closed."""
    look_seconds: float = 1.0
    """Time between two counts of connections."""

    def options(self) -> list[tuple[str, int]]:
        """Returns the options for gRPC."""
        milliseconds = {
            "grpc.server_handshake_timeout_ms": self.handshake_seconds,
            "grpc.http2.settings_timeout": self.handshake_seconds,
            "grpc.keepalive_time_ms": self.answer_seconds,
            "grpc.keepalive_timeout_ms": self.answer_seconds,
            # Otherwise gRPC waits a minute for the answer to a ping, whatever the time above.
            "grpc.http2.ping_timeout_ms": self.answer_seconds,
            "grpc.max_connection_idle_ms": self.idle_seconds,
            "grpc.max_connection_age_ms": self.age_seconds,
            "grpc.max_connection_age_grace_ms": self.grace_seconds,
        }
        made = [(name, round(seconds * 1000)) for name, seconds in milliseconds.items()]
        return [*made, ("grpc.max_concurrent_streams", self.calls)]


async def bound_connections(port: int, bounds: GrpcBounds) -> None:
    """Close surplus connections to a port of this process, until cancelled."""
    is_told = False
    while True:
        await asyncio.sleep(bounds.look_seconds)
        try:
            await asyncio.to_thread(_close_quietest, port, bounds.connections)
        except OSError as error:  # such as when the process may open no further file
            if not is_told:
                _log.warning("connections to the gRPC port can't be counted: %s", error)
            is_told = True
        else:
            is_told = False


def _close_quietest(port: int, connections: int) -> None:
    open_files = [int(path.name) for path in _OPEN_FILES.iterdir()]
    if len(open_files) <= connections:
        return
    silent: dict[int, int] = {}
    for number in open_files:
        with suppress(OSError), _accepted(number, port) as found:
            silent[number] = _silent_milliseconds(found)
    surplus = max(0, len(silent) - connections)
    for number in sorted(silent, key=silent.__getitem__, reverse=True)[:surplus]:
        with suppress(OSError), _accepted(number, port) as found:
            found.shutdown(socket.SHUT_RDWR)


@contextmanager
def _accepted(number: int, port: int) -> Iterator[socket.socket]:
    """Yields the connection with a file descriptor, as a duplicate that is closed after the ``with`` block.

    Raises:
        OSError: it is not a connection to the port, or has just been closed.
    """
    copy = os.dup(number)
    try:
        found = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
    with found:
        if not _is_accepted(found, port):
            raise OSError(f"file {number} is no connection to port {port}")
        yield found


def _is_accepted(found: socket.socket, port: int) -> bool:
    if found.type != socket.SOCK_STREAM or found.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    is_listening = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    return not is_listening and bool(found.getsockname()[1] == port)


def _silent_milliseconds(found: socket.socket) -> int:
    info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int.from_bytes(info[_LAST_RECEIVED], sys.byteorder)
