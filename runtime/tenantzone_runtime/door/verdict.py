"""Lets the engine refuse a request that the door has let through, with an answer of the door's, and say that it has it.

vLLM knows of no request that is refused where blocks are known: whatever ends there with an error is answered with 500,
or in the midst of a stream. So the part of the engine that hears of a refusal passes it on to the door, and waits. For
vLLM the client then has gone away, which it takes calmly on each route; and the door answers.
"""

import asyncio
from contextvars import ContextVar
from typing import Protocol

from tenantzone_runtime.door.answers import App, Message, Receive, Refusal, Scope, Send, error_event
from tenantzone_runtime.door.refusals import count_refusal

_PATIENCE_SECONDS = 30.0
"""How long a refusal waits until vLLM takes the client for gone."""


class Hearing(Protocol):
    """Who hears what becomes of one request behind the door."""

    def is_ready(self) -> None:
        """The engine has it: it was made tokens of."""

    def is_refused(self, refusal: Refusal, seconds: float) -> None:
        """The engine has refused it, and would refuse others of the same tenant for so long."""


class _Verdict:
    """Whether one request is refused, and how."""

    def __init__(self, hearing: Hearing) -> None:
        self.hearing = hearing
        self.refusal: Refusal | None = None
        self.is_given = asyncio.Event()


_current: ContextVar[_Verdict | None] = ContextVar("tenantzone_verdict", default=None)


def arrive() -> None:
    """Tell the door that the request that this is called for is in the engine; nothing if no door is there."""
    verdict = _current.get()
    if verdict is not None:
        verdict.hearing.is_ready()


async def refuse(status: int, message: str, retry_after: int | None = None, closed_seconds: float = 0.0) -> None:
    """Have the door answer the request that this is called for with an error of the engine's; see `refuse_with`.

    Args:
        status: HTTP status, one that the door answers with.
        message: for the client.
        retry_after: seconds after which the client should ask again; None: that is not said.
        closed_seconds: for which the door may refuse by itself whatever else comes of the tenant.
    """
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    await refuse_with(Refusal(status, "engine", message, headers=headers), closed_seconds)


async def refuse_with(refusal: Refusal, closed_seconds: float = 0.0) -> None:
    """Have the door answer the request that this is called for with a refusal; returns if no door is there."""
    verdict = _current.get()
    if verdict is not None:
        verdict.refusal = refusal
        verdict.hearing.is_refused(refusal, closed_seconds)
        verdict.is_given.set()
        # Until vLLM cancels this.
        await asyncio.sleep(_PATIENCE_SECONDS)


def judged(app: App, hearing: Hearing) -> App:
    """The application, for a request that the engine may refuse."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        verdict = _Verdict(hearing)
        answer = _Answer(verdict, send)
        token = _current.set(verdict)
        try:
            await app(scope, _gone_when_refused(verdict, receive), answer.send)
        except Exception:
            if verdict.refusal is None:
                raise
        finally:
            _current.reset(token)
        if verdict.refusal is not None:
            count_refusal(verdict.refusal.reason)
            await answer.refuse(scope, verdict.refusal)

    return call


def _gone_when_refused(verdict: _Verdict, receive: Receive) -> Receive:
    async def receive_or_go() -> Message:
        coming = asyncio.ensure_future(receive())
        refused = asyncio.ensure_future(verdict.is_given.wait())
        try:
            await asyncio.wait((coming, refused), return_when=asyncio.FIRST_COMPLETED)
            return {"type": "http.disconnect"} if verdict.is_given.is_set() else coming.result()
        finally:
            coming.cancel()
            refused.cancel()

    return receive_or_go


class _Answer:
    """The answer to a request, whose head is kept back until there is something behind it.

    Args:
        verdict: once it is given, nothing more of the application's is sent.
        send: takes the answer's messages.
    """

    def __init__(self, verdict: _Verdict, send: Send) -> None:
        self._verdict = verdict
        self._send = send
        self._head: Message | None = None
        self._has_begun = False

    async def send(self, message: Message) -> None:
        """Pass on a message of the application's."""
        if self._verdict.refusal is not None:
            return
        if message["type"] == "http.response.start":
            self._head = message
            return
        if self._head is not None:
            head, self._head = self._head, None
            self._has_begun = True
            await self._send(head)
        await self._send(message)

    async def refuse(self, scope: Scope, refusal: Refusal) -> None:
        """Answer with a refusal; within a stream of events, if that has begun."""
        if self._has_begun:
            event = error_event(scope, refusal.body(scope))
            await self._send({"type": "http.response.body", "body": event})
        else:
            await refusal.send(scope, self._send)
