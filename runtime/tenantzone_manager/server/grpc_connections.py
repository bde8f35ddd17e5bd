"""Limits for slow clients of the gRPC port: time limits of gRPC, and a maximum number of connections.

gRPC can only refuse new connections above a maximum. This module instead closes the connections that have received no
data for the longest time. gRPC does not expose its sockets, so this module finds them among the process's open files.
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
"""Position of ``tcpi_last_data_recv``, the milliseconds since data arrived, in Linux's ``struct tcp_info``."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GrpcBounds:
    """Limits for the clients of the gRPC port."""

    handshake_seconds: float = 10.0
    """Maximum time from accepting a connection to the end of the TLS handshake and the first HTTP/2 frames."""
    message_seconds: float = 30.0
    """Maximum time from the headers of a call to the end of its message."""
    answer_seconds: float = 10.0
    """Time within which a client must answer a ping or accept data."""
    idle_seconds: float = 300.0
    """Time after which a connection without calls is closed."""
    age_seconds: float = 600.0
    """Age from which a connection accepts no new calls."""
    grace_seconds: float = 120.0
    """Time after ``age_seconds`` within which calls in flight must finish, including the transfer of answers."""
    calls: int = 256
    """Maximum number of concurrent calls on one connection."""
    connections: int = 1024
    """Maximum number of connections. Above this number, the connections that were silent for longest are closed."""
    look_seconds: float = 1.0
    """Time between two counts of connections."""

    def options(self) -> list[tuple[str, int]]:
        """Returns the options for the gRPC server."""
        milliseconds = {
            "grpc.server_handshake_timeout_ms": self.handshake_seconds,
            "grpc.http2.settings_timeout": self.handshake_seconds,
            "grpc.keepalive_time_ms": self.answer_seconds,
            "grpc.keepalive_timeout_ms": self.answer_seconds,
            # Without this option, gRPC waits a minute for the answer to a ping, despite the timeout above.
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
        except OSError as error:  # for example, because the process has reached its limit of open files
            if not is_told:
                _log.warning("connections to the gRPC port can't be counted, so none are closed: %s", error)
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
    """Opens a duplicate of the socket with this file descriptor, and closes the duplicate after the ``with`` block.

    Raises:
        OSError: the descriptor is not a connection to the port, or has just been closed.
    """
    copy = os.dup(number)
    try:
        found = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
    with found:
        if not _is_accepted(found, port):
            raise OSError(f"file descriptor {number} is not a connection to port {port}")
        yield found


def _is_accepted(found: socket.socket, port: int) -> bool:
    if found.type != socket.SOCK_STREAM or found.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    is_listening = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    return not is_listening and bool(found.getsockname()[1] == port)


def _silent_milliseconds(found: socket.socket) -> int:
    info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int.from_bytes(info[_LAST_RECEIVED], sys.byteorder)
