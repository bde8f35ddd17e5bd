"""Asks an engine's admin port over HTTP, and takes what an engine sends: one head, and as many bytes as it announces.

A library does not do here. It understands all that HTTP allows: interim answers without end, chunks of one byte, each
with an extension, trailers. Any pod can send those, and they cost the event loop its time while no body comes that
could be counted.
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
"""An answer may come in so many pieces, whatever its length, ..."""
PIECE_BYTES = 512
"""... and in one more for so many bytes: networks cut larger ones."""
PIECE_COSTS_BYTES = 2 * 2**10
"""To receive a piece takes about as long as to read a report of this length: the least that it takes of the quota."""


class UnbelievableError(ValueError):
    """An answer that no engine of ours gives; to read another one like it would cost as much."""


class TokenRefusedError(ValueError):
    """An engine of ours answers, and refuses the token that it was shown."""


class SlowError(TimeoutError):
    """The connection to an engine was accepted, and the answer was not there in time."""


async def fetch(
    host: str, port: int, path: str, *, max_bytes: int, quota: ReadingQuota, patience: float, token: str = ""
) -> bytes:
    """Get the content at a path of an engine's admin port.

    Nothing is decompressed, no redirect followed, no proxy asked, and the connection is closed in any case.

    Args:
        host: an IP address.
        port: the engine's admin port.
        path: with its query.
        max_bytes: that are believed, without the head.
        quota: pays for all that comes.
        patience: in seconds, for all of it.
        token: to show; empty: none.

    Raises:
        UnbelievableError, TokenRefusedError: see there.
        ValueError: the status is not 200, or the host is no address.
        SlowError, TimeoutError: it was not there in time.
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
        """The body of the answer, after its head."""
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
        """Receive some more, until so many bytes have come."""
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
    """The length of the body, as the answer's head announces it."""
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
