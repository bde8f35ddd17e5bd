"""Requests an engine's admin port over HTTP, and accepts one form of answer: a head and a body of known length.

An HTTP library would accept everything that HTTP allows: endless interim answers, chunks of one byte, each with an
extension, and trailers. Any pod can send those. They would cost the event loop time without a body that could be
counted.
"""

import asyncio
import socket
from ipaddress import ip_address

from tenantzone_contract.admin_token import ADMIN_REALM
from tenantzone_operator.engines.reading_quota import ReadingQuota

MAX_HEAD_BYTES = 8 * 2**10
_END_OF_HEAD = b"\r\n\r\n"
_READ_BYTES = 2**16

PIECES = 64
"""The number of pieces in which an answer of any length may arrive."""
PIECE_BYTES = 512
"""The number of bytes for which one more piece is allowed: networks split larger ones."""
PIECE_COSTS_BYTES = 2 * 2**10
"""The least that a piece costs of the quota: receiving it takes about as long as reading a report of this length."""


class UnbelievableError(ValueError):
    """An answer that no engine of ours gives; reading another one like it would cost as much."""


class TokenRefusedError(ValueError):
    """An engine of ours answers, and refuses the token."""


class SlowError(TimeoutError):
    """The connection to an engine was accepted, but the answer did not arrive in time."""


async def fetch(
    host: str, port: int, path: str, *, max_bytes: int, quota: ReadingQuota, patience: float, token: str = ""
) -> bytes:
    """Get the content at a path of an engine's admin port.

    Decompresses nothing, follows no redirect, uses no proxy, and always closes the connection.

    Args:
        host: an IP address.
        port: the engine's admin port.
        path: the path with its query.
        max_bytes: the most bytes that the body may have.
        quota: charged for all bytes that arrive.
        patience: seconds for the whole request.
        token: the token to send; empty for none.

    Raises:
        UnbelievableError, TokenRefusedError: see there.
        ValueError: the status is not 200, or the host is not an IP address.
        SlowError, TimeoutError: the answer did not arrive in time.
        OSError: there is no connection, or it broke.
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
        """Returns the body of the answer, after reading its head."""
        while (end := self._came.find(_END_OF_HEAD)) < 0:
            if len(self._came) >= MAX_HEAD_BYTES:
                raise UnbelievableError(f"{what} answers with a head of more than {MAX_HEAD_BYTES:,} bytes")
            await self._receive(MAX_HEAD_BYTES)
        length = _read_head(bytes(self._came[:end]), what)
        if length > max_bytes:
            raise UnbelievableError(f"{what} is too large: more than {max_bytes:,} bytes")
        begin = end + len(_END_OF_HEAD)
        while len(self._came) < begin + length:
            await self._receive(begin + length)
        return bytes(memoryview(self._came)[begin : begin + length])

    async def _receive(self, until: int) -> None:
        """Receive one more piece, up to ``until`` bytes in all."""
        count = min(until - len(self._came), _READ_BYTES)
        piece = await asyncio.get_running_loop().sock_recv(self._connection, count)
        if not piece:
            raise ConnectionError("closed before the end of the answer")
        self._quota.spend(max(len(piece), PIECE_COSTS_BYTES))
        self._came += piece
        self._pieces += 1
        if self._pieces > PIECES + len(self._came) // PIECE_BYTES:
            raise UnbelievableError("it answers in pieces that are too small")


def _read_head(head: bytes, what: str) -> int:
    """Returns the length of the body, as the answer's head announces it."""
    first, *lines = head.split(b"\r\n")
    version, _, rest = first.partition(b" ")
    status = rest[:3]
    if version not in (b"HTTP/1.0", b"HTTP/1.1") or not status.isdigit() or status < b"200":
        raise UnbelievableError(f"{what} answers with what is not HTTP, or not at once")
    headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    if status == b"401" and f'realm="{ADMIN_REALM}"'.encode() in dict(headers).get(b"www-authenticate", b""):
        raise TokenRefusedError("its admin port refuses the token")
    if status != b"200":
        raise ValueError(f"{what} answers with status {int(status)}")
    lengths = [value for name, value in headers if name == b"content-length"]
    if len(lengths) != 1 or not lengths[0].isdigit() or len(lengths[0]) > 12 or b"transfer-encoding" in dict(headers):
        raise UnbelievableError(f"{what} answers without saying how long its body is")
    return int(lengths[0])
