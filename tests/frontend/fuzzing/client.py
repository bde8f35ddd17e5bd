"""Clients that send the drawn requests, and what they see of the server."""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from bench.attacks.forge.forgery import has_failed, names_internals
from bench.attacks.forge.raw import Reply, read_answer
from tests.frontend.fuzzing.drawn import Sending

BOUND_SECONDS = 300.0
"""Seconds after which a request that is neither answered nor closed counts as hung."""
_SHOWN_BYTES = 400


@dataclass(frozen=True, slots=True)
class Violation:
    """A request that the server has not handled as it should."""

    sending: Sending
    what: str


@dataclass(slots=True)
class Seen:
    """The outcomes of all requests."""

    statuses: Counter[int | None] = field(default_factory=Counter)
    """Answers by status; None: the server or the client closed the connection without an answer."""
    violations: list[Violation] = field(default_factory=list)

    def note(self, sending: Sending, reply: Reply | None) -> None:
        """Counts the answer to a request; None: it hangs."""
        self.statuses[reply.status if reply else None] += 1
        what = "it hangs" if reply is None else _wrong_with(reply)
        if what:
            self.violations.append(Violation(sending, what))


def _wrong_with(reply: Reply) -> str:
    shown = f"{reply.status} {reply.body[:_SHOWN_BYTES]!r}"
    if has_failed(reply) or ((reply.status or 0) >= 500 and reply.status != 503):
        return f"the server failed: {shown}"
    return f"the answer names the server's internals: {shown}" if names_internals(reply) else ""


async def send_each(host: str, port: int, sendings: Iterator[Sending], seen: Seen) -> None:
    """Sends requests one after another, each over its own connection, until there are no more.

    Raises:
        OSError: the server can't be reached.
    """
    for sending in sendings:
        try:
            async with asyncio.timeout(BOUND_SECONDS):
                reply = await send(host, port, sending)
        except TimeoutError:
            seen.note(sending, None)
        else:
            seen.note(sending, reply)


async def send(host: str, port: int, sending: Sending) -> Reply:
    """Sends one request in the way that was drawn for it.

    Raises:
        OSError: the server can't be reached.
    """
    reader, writer = await asyncio.open_connection(host, port)
    status, body = None, b""
    try:
        # The server may have answered and closed before it has read everything.
        with suppress(ConnectionError):
            for part in sending.parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)
            if sending.reads is None:
                status, body = await read_answer(reader, sending.request)
            elif sending.reads:
                await reader.read(sending.reads)
        if sending.breaks_off:
            reset_when_closed(writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    return Reply(status, body, 0.0)


def reset_when_closed(writer: asyncio.StreamWriter) -> None:
    """Makes the close of a connection reset it."""
    if writer.is_closing():  # The server was first, and asyncio has closed the socket.
        return
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
