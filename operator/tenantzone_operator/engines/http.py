"""Sends HTTP requests to engines' admin ports, and only accepts responses with a Content-Length.

Any pod may send the response. An HTTP library would also accept endless interim responses, one-byte chunks with
extensions, and trailers. These cost CPU time in the event loop, but contain no body bytes that a quota could limit.
"""

import asyncio
import socket
from ipaddress import ip_address

from tenantzone_contract.keys.admin_token import ADMIN_REALM
from tenantzone_operator.engines.reading_quota import ReadingQuota

MAX_HEAD_BYTES = 8 * 2**10
_END_OF_HEAD = b"\r\n\r\n"
_READ_BYTES = 2**16

PIECES = 64
"""Number of pieces in which a response of any length may arrive. One read from the socket returns one piece."""
PIECE_BYTES = 512
"""Number of received bytes for which one additional piece is allowed. Networks split responses into larger pieces."""
PIECE_COSTS_BYTES = 2 * 2**10
"""Minimum number of bytes to charge for a piece. Receiving a piece takes as long as parsing about this many bytes."""


class UnbelievableError(ValueError):
    """The response can't be from an engine of this project, so callers should wait before they ask this pod again."""


class TokenRefusedError(ValueError):
    """The engine refuses the token."""


class SlowError(TimeoutError):
    """The engine accepted the connection, but the response did not arrive in time."""


async def fetch(
    host: str, port: int, path: str, *, max_bytes: int, quota: ReadingQuota, patience: float, token: str = ""
) -> bytes:
    """Send a GET request to an engine's admin port, and return the body.

    The request accepts no compression, follows no redirects, uses no proxy, and closes the connection.

    Args:
        host: an IP address.
        port: the engine's admin port.
        path: the path with its query.
        max_bytes: the maximum size of the body in bytes.
        quota: the quota to which all received bytes are charged.
        patience: timeout of the whole request in seconds.
        token: the token to send; empty for no token.

    Raises:
        UnbelievableError: the response can't be from an engine.
        TokenRefusedError: the engine refuses the token.
        ValueError: the status is not 200, or the host is not an IP address.
        SlowError, TimeoutError: the response did not arrive in time.
        OSError: the connection could not be opened, or broke.
    """
    address = ip_address(host)
    is_connected = False
    name, family = (f"[{host}]", socket.AF_INET6) if address.version == 6 else (host, socket.AF_INET)
    shown = f"Authorization: Bearer {token}\r\n" if token else ""
    head = f"Host: {name}:{port}\r\nAccept-Encoding: identity\r\nConnection: close\r\n{shown}"
    request = f"GET {path} HTTP/1.1\r\n{head}\r\n"
    try:
        async with asyncio.timeout(patience):
            with socket.socket(family) as connection:
                connection.setblocking(False)
                await asyncio.get_running_loop().sock_connect(connection, (host, port))
                is_connected = True
                await asyncio.get_running_loop().sock_sendall(connection, request.encode())
                return await _Answer(connection, quota).read(path.partition("?")[0], max_bytes)
    except TimeoutError:
        if is_connected:
            raise SlowError from None
        raise


class _Answer:
    def __init__(self, connection: socket.socket, quota: ReadingQuota) -> None:
        self._connection = connection
        self._quota = quota
        self._came = bytearray()
        self._pieces = 0

    async def read(self, what: str, max_bytes: int) -> bytes:
        """Read the head and the body of the response, and return the body."""
        while (end := self._came.find(_END_OF_HEAD)) < 0:
            if len(self._came) >= MAX_HEAD_BYTES:
                raise UnbelievableError(f"{what} answers with a head of more than {MAX_HEAD_BYTES:,} bytes")
            await self._receive(MAX_HEAD_BYTES)
        length = _read_head(bytes(self._came[:end]), what)
        if length > max_bytes:
            raise UnbelievableError(f"{what} exceeds the maximum of {max_bytes:,} bytes")
        begin = end + len(_END_OF_HEAD)
        while len(self._came) < begin + length:
            await self._receive(begin + length)
        return bytes(memoryview(self._came)[begin : begin + length])

    async def _receive(self, until: int) -> None:
        """Receive one more piece, up to ``until`` bytes in total."""
        count = min(until - len(self._came), _READ_BYTES)
        piece = await asyncio.get_running_loop().sock_recv(self._connection, count)
        if not piece:
            raise ConnectionError("the engine closed the connection before the end of the answer")
        self._quota.spend(max(len(piece), PIECE_COSTS_BYTES))
        self._came += piece
        self._pieces += 1
        if self._pieces > PIECES + len(self._came) // PIECE_BYTES:
            raise UnbelievableError("the engine sends its answer in too many small pieces")


def _read_head(head: bytes, what: str) -> int:
    """Returns the Content-Length in the head of a response."""
    first, *lines = head.split(b"\r\n")
    version, _, rest = first.partition(b" ")
    status = rest[:3]
    if version not in (b"HTTP/1.0", b"HTTP/1.1") or not status.isdigit() or status < b"200":
        raise UnbelievableError(f"{what} does not answer with an HTTP/1 response, or sends an interim response first")
    headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    if status == b"401" and f'realm="{ADMIN_REALM}"'.encode() in dict(headers).get(b"www-authenticate", b""):
        raise TokenRefusedError("its admin port refuses the token")
    if status != b"200":
        raise ValueError(f"{what} answers with status {int(status)}")
    lengths = [value for name, value in headers if name == b"content-length"]
    if len(lengths) != 1 or not lengths[0].isdigit() or len(lengths[0]) > 12 or b"transfer-encoding" in dict(headers):
        raise UnbelievableError(f"{what} answers without a valid Content-Length")
    return int(lengths[0])
