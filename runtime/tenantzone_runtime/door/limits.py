"""Reads a request's body whole, within bounds."""

from tenantzone_runtime.door.answers import Receive, Refusal

MAX_BODY_BYTES = 64 * 2**20
"""The largest body that is held in memory for sealing. Images travel in bodies, so it is generous."""


class ClientDisconnected(Exception):
    """The client went away before its request was complete."""


async def read_body(receive: Receive, declared_length: bytes | None, limit: int = MAX_BODY_BYTES) -> bytes:
    """Read a request's body, whether it comes in one piece or in chunks.

    Args:
        receive: the request's messages.
        declared_length: its ``Content-Length`` header, if it has one: what is too large is then refused unread.
        limit: bytes.

    Raises:
        Refusal: it is larger than ``limit``.
        ClientDisconnected: it never came to its end.
    """
    if declared_length is not None and declared_length.isdigit() and int(declared_length) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
        more = message.get("more_body", False)
    return b"".join(chunks)


def _too_large(limit: int) -> Refusal:
    return Refusal(
        413,
        "large_body",
        f"The request's body is larger than {limit} bytes; send a smaller one",
        headers={"connection": "close"},
    )
