"""Bounds on what slow clients of the gRPC port hold: gRPC's own for time, and one of ours for their number.

gRPC can only refuse new connections beyond a number. Here a new connection is accepted, and the one that has sent
nothing for longest is closed. gRPC does not show its sockets, so this looks for them among those of the process.
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
"""Where struct tcp_info of Linux has the milliseconds since something came."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GrpcBounds:
    """What the clients of the gRPC port may take."""

    handshake_seconds: float = 10.0
    """For TLS and HTTP/2's first frames, from the connection on."""
    message_seconds: float = 30.0
    """For a call's message, from its head on."""
    answer_seconds: float = 10.0
    """In which a client must answer a ping, or take what it was sent."""
    idle_seconds: float = 300.0
    """That a connection stays open without a call."""
    age_seconds: float = 600.0
    """After which a connection takes no new call, ..."""
    grace_seconds: float = 120.0
    """... and what its last calls have then, slow reading included."""
    calls: int = 256
    """Under way on one connection."""
    connections: int = 1024
    """Beyond it, the connection that has sent nothing for longest is closed."""
    look_seconds: float = 1.0
    """Between two looks at their number."""

    def options(self) -> list[tuple[str, int]]:
        """As gRPC takes them."""
        milliseconds = {
            "grpc.server_handshake_timeout_ms": self.handshake_seconds,
            "grpc.http2.settings_timeout": self.handshake_seconds,
            "grpc.keepalive_time_ms": self.answer_seconds,
            "grpc.keepalive_timeout_ms": self.answer_seconds,
            # Without it, gRPC waits a minute for the answer to a ping, whatever the time above.
            "grpc.http2.ping_timeout_ms": self.answer_seconds,
            "grpc.max_connection_idle_ms": self.idle_seconds,
            "grpc.max_connection_age_ms": self.age_seconds,
            "grpc.max_connection_age_grace_ms": self.grace_seconds,
        }
        made = [(name, round(seconds * 1000)) for name, seconds in milliseconds.items()]
        return [*made, ("grpc.max_concurrent_streams", self.calls)]


async def bound_connections(port: int, bounds: GrpcBounds) -> None:
    """Close the connections to a port of this process that are too many, until cancelled."""
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
    """A connection to a port, by its file's number; only while the block runs there is one more file for it.

    Raises:
        OSError: it is something else, or has just been closed.
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
