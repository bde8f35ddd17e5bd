"""Lets the engine's code refuse a request that the frontend has already passed on to vLLM.

The engine's code can decide only when it knows how many blocks the request needs. An error raised there would become a
500, or an event in a stream. So the engine's code passes a refusal to the frontend, and waits. The frontend answers the
client itself, and reports to vLLM that the client has disconnected. vLLM handles a disconnect on each route. Until the
engine begins to answer, the frontend buffers vLLM's messages, so that it can still send the status of a refusal.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Protocol

from tenantzone_runtime.frontend.responses.answers import App, Message, Receive, Refusal, Scope, Send, error_event
from tenantzone_runtime.frontend.responses.refusals import count_refusal

_PATIENCE_SECONDS = 30.0
"""Maximum time in seconds for which a refused request waits until vLLM handles the reported disconnect."""


class RefusalListener(Protocol):
    """Listens to the engine's decision on one request."""

    def is_ready(self) -> None:
        """Called when the request has been tokenized and passed to the engine."""

    def is_refused(self, refusal: Refusal, seconds: float) -> None:
        """Called when the engine has refused the request.

        Args:
            refusal: the answer for the client.
            seconds: seconds for which the engine will also refuse the tenant's other requests.
        """


async def _nothing_kept() -> None:
    """Do nothing, because no part of the answer is buffered yet."""


class _EngineDecision:
    """The engine's decision on one request: the refusal, if any, and whether the engine has begun to answer."""

    def __init__(self, listener: RefusalListener) -> None:
        self.listener = listener
        self.refusal: Refusal | None = None
        self.is_given = asyncio.Event()
        """Set when the engine refuses the request."""
        self.is_accepted = False
        """Whether the engine has begun to answer."""
        self.release: Callable[[], Awaitable[None]] = _nothing_kept
        """Sends the buffered part of the answer to the client."""


_current: ContextVar[_EngineDecision | None] = ContextVar("tenantzone_engine_decision", default=None)


def arrive() -> None:
    """Report that the current request was passed to the engine. Does nothing without a frontend."""
    decision = _current.get()
    if decision is not None:
        decision.listener.is_ready()


async def accept() -> None:
    """Report that the engine has begun to answer the current request.

    The frontend then sends the buffered part of the answer. Further calls have no effect. A call for a request that did
    not pass through the frontend has no effect either.
    """
    decision = _current.get()
    if decision is not None and not decision.is_accepted:
        decision.is_accepted = True
        await decision.release()


async def refuse(
    status: int,
    message: str,
    retry_after: int | None = None,
    closed_seconds: float = 0.0,
    *,
    param: str | None = None,
) -> None:
    """Have the frontend answer the current request with an error of the engine; see `refuse_with`.

    Args:
        status: HTTP status of the answer.
        message: the error message for the client.
        retry_after: seconds after which the client should retry; None if unknown.
        closed_seconds: seconds for which the frontend may refuse further requests of the tenant without asking the
            engine.
        param: the invalid field of the request's body; None if the error is not about a field.
    """
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    await refuse_with(Refusal(status, "engine", message, param=param, headers=headers), closed_seconds)


async def refuse_with(refusal: Refusal, closed_seconds: float = 0.0) -> None:
    """Have the frontend refuse the current request, and wait until vLLM cancels it. Without a frontend, do nothing."""
    if refuse_answer(refusal, closed_seconds):
        # Wait here, because vLLM cancels this task when it handles the disconnect.
        await asyncio.sleep(_PATIENCE_SECONDS)


def refuse_answer(refusal: Refusal, closed_seconds: float = 0.0) -> bool:
    """Have the frontend answer the current request with a refusal, and drop everything that vLLM still sends.

    Returns:
        True if the request passed through the frontend; otherwise False, and nothing is done.
    """
    decision = _current.get()
    if decision is None:
        return False
    decision.refusal = refusal
    decision.listener.is_refused(refusal, closed_seconds)
    decision.is_given.set()
    return True


def refusable(app: App, listener: RefusalListener) -> App:
    """Wrap the application so that the engine may refuse the request that the application answers."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        decision = _EngineDecision(listener)
        answer = _Answer(decision, send)
        decision.release = answer.release
        token = _current.set(decision)
        try:
            await app(scope, _gone_when_refused(decision, receive), answer.send)
        except Exception:
            if decision.refusal is None:
                raise
        finally:
            _current.reset(token)
        if decision.refusal is not None:
            count_refusal(decision.refusal.reason)
            await answer.refuse(scope, decision.refusal)

    return call


def _gone_when_refused(decision: _EngineDecision, receive: Receive) -> Receive:
    async def receive_or_go() -> Message:
        coming = asyncio.ensure_future(receive())
        refused = asyncio.ensure_future(decision.is_given.wait())
        try:
            await asyncio.wait((coming, refused), return_when=asyncio.FIRST_COMPLETED)
            return {"type": "http.disconnect"} if decision.is_given.is_set() else coming.result()
        finally:
            coming.cancel()
            refused.cancel()

    return receive_or_go


class _Answer:
    """The application's answer to a request. It is buffered until the engine has accepted or refused the request.

    The engine accepts the request by beginning to answer. If the application's answer is complete, it is sent even
    before that. Buffering is needed because some routes begin a stream before the engine gets the request.

    Args:
        decision: the engine's decision. After a refusal, no further message of the application is sent.
        send: sends the answer's ASGI messages to the client.
    """

    def __init__(self, decision: _EngineDecision, send: Send) -> None:
        self._decision = decision
        self._send = send
        self._kept: list[Message] = []
        self._has_begun = False
        self._turn = asyncio.Lock()
        """Held while messages are sent, so that they keep their order. `accept` may send messages in another task."""

    async def send(self, message: Message) -> None:
        """Send, buffer or drop a message of the application, according to the engine's decision."""
        async with self._turn:
            if self._decision.refusal is not None:
                return
            self._kept.append(message)
            is_whole = message["type"] == "http.response.body" and not message.get("more_body", False)
            if is_whole or self._decision.is_accepted:
                await self._pass_on()

    async def release(self) -> None:
        """Send the buffered messages."""
        async with self._turn:
            if self._decision.refusal is None:
                await self._pass_on()

    async def _pass_on(self) -> None:
        # Send the head only together with the first part of the body. Until then, a refusal can still set the status.
        if not self._has_begun and len(self._kept) < 2:
            return
        self._has_begun = True
        kept, self._kept = self._kept, []
        for message in kept:
            await self._send(message)

    async def refuse(self, scope: Scope, refusal: Refusal) -> None:
        """Send a refusal to the client, as an error event if the stream has already begun."""
        if self._has_begun:
            event = error_event(scope, refusal.body(scope))
            await self._send({"type": "http.response.body", "body": event})
        else:
            await refusal.send(scope, self._send)
