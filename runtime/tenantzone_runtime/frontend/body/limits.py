"""Reads a request's complete body, within bounds of size and time."""

import asyncio
from collections.abc import Callable

from tenantzone_runtime.frontend.responses.answers import Receive, Refusal

BODY_SECONDS = 10.0
"""Time in seconds that every body may take to arrive."""
MIN_BYTES_PER_SECOND = 64 * 2**10
"""Number of received bytes that give a body one more second."""


class ClientDisconnected(Exception):
    """The client disconnected before its request was complete."""


async def read_body(
    receive: Receive,
    declared_length: bytes | None,
    limit: int,
    hold: Callable[[int], None] = lambda size: None,
    *,
    seconds: float = BODY_SECONDS,
) -> bytes:
    """Read a request's body, in one piece or in chunks.

    Args:
        receive: the request's messages.
        declared_length: its ``Content-Length`` header, if it has one: a body that is too large is then refused unread.
        limit: the maximum size in bytes.
        hold: called with the size of each piece before the piece is kept; an exception ends the reading.
        seconds: the time that every body may take to arrive.

    Raises:
        Refusal: the body is larger than ``limit``, or arrives too slowly.
        ClientDisconnected: it did not arrive completely.
    """
    if declared_length is not None and declared_length.isdigit():
        # Python refuses to convert numbers of thousands of digits, even if most of them are leading zeros.
        digits = declared_length.lstrip(b"0")
        if len(digits) > len(str(limit)) or int(digits or b"0") > limit:
            raise _too_large(limit)
    body = bytearray()
    more = True
    try:
        async with asyncio.timeout(seconds) as deadline:
            began = asyncio.get_running_loop().time()
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                chunk = message.get("body", b"")
                if len(body) + len(chunk) > limit:
                    raise _too_large(limit)
                hold(len(chunk))
                body += chunk
                more = message.get("more_body", False)
                deadline.reschedule(began + seconds + len(body) / MIN_BYTES_PER_SECOND)
    except TimeoutError:
        raise Refusal(
            408,
            "slow_body",
            f"The request's body came too slowly: {len(body)} bytes in {seconds:g} s and more",
            headers={"connection": "close"},
        ) from None
    return bytes(body)


def _too_large(limit: int) -> Refusal:
    return Refusal(
        413,
        "large_body",
        f"The request's body is larger than {limit} bytes; send a smaller one",
        headers={"connection": "close"},
    )
