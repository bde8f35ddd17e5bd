"""Reads a request's complete body, with limits on its size and on the time until it has arrived."""

import asyncio
from collections.abc import Callable

from tenantzone_runtime.frontend.responses.answers import Receive, Refusal

BODY_SECONDS = 10.0
"""Seconds that even the smallest body may take to arrive."""
MIN_BYTES_PER_SECOND = 64 * 2**10
"""Number of received bytes that extend the time for a body by one second."""


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
    """Read and return a request's body.

    Args:
        receive: receives the request's ASGI messages.
        declared_length: the ``Content-Length`` header, or None. If it exceeds the limit, the body is not read.
        limit: maximum size of the body in bytes.
        hold: called with the size of each piece before the piece is kept. If it raises an error, reading ends.
        seconds: seconds that even the smallest body may take to arrive. Each received byte extends this time.

    Raises:
        Refusal: the body is larger than ``limit``, or arrives too slowly.
        ClientDisconnected: the client disconnected before the body was complete.
    """
    if declared_length is not None and declared_length.isdigit():
        # Compare the number of digits first, because Python refuses to convert numbers with thousands of digits, even
        # if most digits are leading zeros.
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
            f"The request's body arrived too slowly: {len(body)} bytes in more than {seconds:g} s; send it "
            "faster, or send a smaller one",
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
