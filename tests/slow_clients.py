"""Deliberately slow clients, over real sockets: half a head, half a body, bytes one by one, answers unread."""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

WAIT_SECONDS = 60.0
"""Seconds that no test waits for."""
DRIP_SECONDS = 0.02

HALF_A_HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: "
HALF_A_BODY = b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{"


def connect(port: int, tls: ssl.SSLContext | None = None, *, receive_bytes: int | None = None) -> socket.socket:
    connection = socket.socket()
    connection.settimeout(WAIT_SECONDS)
    if receive_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.connect(("127.0.0.1", port))
    return connection if tls is None else tls.wrap_socket(connection)


def is_closed_within(port: int, begin: bytes, drop: bytes = b"", tls: ssl.SSLContext | None = None) -> bool:
    """Sends the beginning, then drop after drop. Returns whether the server closes, with an answer or without."""
    with closing(connect(port, tls)) as connection:
        try:
            connection.sendall(begin)
            connection.settimeout(DRIP_SECONDS if drop else WAIT_SECONDS)
            give_up = time.monotonic() + WAIT_SECONDS
            while time.monotonic() < give_up:
                try:
                    if connection.recv(65536) == b"":
                        return True
                except TimeoutError:
                    connection.sendall(drop)
        except OSError:
            return True
    return False


def is_closed(connection: socket.socket) -> bool:
    """Waits until the server closes a connection. Returns whether it did."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@contextmanager
def silent(port: int, many: int, begin: bytes = HALF_A_HEAD) -> Iterator[list[socket.socket]]:
    """`many` connections at once, each with an unfinished beginning."""
    with ExitStack() as stack:
        connections = []
        for _ in range(many):
            connection = stack.enter_context(closing(connect(port)))
            connection.sendall(begin)
            connections.append(connection)
        yield connections
