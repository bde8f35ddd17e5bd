"""Lets the engine refuse an admitted request with an answer of the frontend, and report that it has the request.

vLLM can't refuse a request at the point at which its blocks are known: an error there becomes a 500, or an event in a
stream. So the engine's code passes a refusal to the frontend, and waits. The frontend then reports to vLLM that the
client has disconnected, which vLLM handles on each route, and answers the client itself. Until the engine begins to
answer, the frontend buffers the messages from vLLM, so that it can still send the status of a refusal.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Protocol

from tenantzone_runtime.frontend.responses.answers import App, Message, Receive, Refusal, Scope, Send, error_event
from tenantzone_runtime.frontend.responses.refusals import count_refusal

_PATIENCE_SECONDS = 30.0
"""Maximum time in seconds for which a refusal waits until vLLM handles the client's disconnect."""


class RefusalListener(Protocol):
    """Listens to the engine's decision on one request."""

    def is_ready(self) -> None:
        """Called when the request was tokenized and is in the engine."""

    def is_refused(self, refusal: Refusal, seconds: float) -> None:
        """Called when the engine has refused the request, and will refuse the tenant's others for ``seconds``."""


async def _nothing_kept() -> None:
    """Do nothing, because no part of the answer is buffered yet."""


class _EngineDecision:
    """The engine's decision on one request: whether it is refused, and with which answer."""

    def __init__(self, listener: RefusalListener) -> None:
        self.listener = listener
        self.refusal: Refusal | None = None
        self.is_given = asyncio.Event()
        """Set once there is a refusal."""
        self.is_accepted = False
        """Whether the engine has begun to answer."""
        self.release: Callable[[], Awaitable[None]] = _nothing_kept
        """Sends the part of the answer that is buffered."""


_current: ContextVar[_EngineDecision | None] = ContextVar("tenantzone_engine_decision", default=None)


def arrive() -> None:
    """Report that the current request is in the engine; does nothing without a frontend."""
    decision = _current.get()
    if decision is not None:
        decision.listener.is_ready()


async def accept() -> None:
    """Report that the engine has begun to answer the current request.

    The frontend then sends the part of the answer that it has buffered. Further calls have no effect, and neither has a
    call for a request that did not come through the frontend.
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
    """Have the frontend answer the current request with an error of the engine's; see `refuse_with`.

    Args:
        status: HTTP status of the answer.
        message: the error message for the client.
        retry_after: seconds after which the client should retry; None to state no time.
        closed_seconds: seconds for which the frontend may refuse all further requests of the tenant itself.
        param: the field of the body that is at fault; None if no field is.
    """
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    await refuse_with(Refusal(status, "engine", message, param=param, headers=headers), closed_seconds)


async def refuse_with(refusal: Refusal, closed_seconds: float = 0.0) -> None:
    """Have the frontend answer the current request with a refusal; returns if there is no frontend."""
    if refuse_answer(refusal, closed_seconds):
        # vLLM cancels this task when it handles the disconnect.
        await asyncio.sleep(_PATIENCE_SECONDS)


def refuse_answer(refusal: Refusal, closed_seconds: float = 0.0) -> bool:
    """Have the frontend answer the current request with a refusal, in place of anything that vLLM still sends.

    Returns:
        Whether there is a frontend.
    """
    decision = _current.get()
    if decision is None:
        return False
    decision.refusal = refusal
    decision.listener.is_refused(refusal, closed_seconds)
    decision.is_given.set()
    return True


def refusable(app: App, listener: RefusalListener) -> App:
    """Returns the application for a request that the engine may refuse."""

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
    """The answer to a request, which is buffered until it is known whether the engine refuses the request.

    This is known when the engine begins to answer, or when the application's answer is complete. Buffering is needed
    because some routes send the first events of a stream before the engine gets the request.

    Args:
        decision: the engine's decision. If it is a refusal, no further message of the application is sent.
        send: takes the answer's messages.
    """

    def __init__(self, decision: _EngineDecision, send: Send) -> None:
        self._decision = decision
        self._send = send
        self._kept: list[Message] = []
        self._has_begun = False
        self._turn = asyncio.Lock()
        """Held while messages are sent, to keep their order, because `accept` may run in another task."""

    async def send(self, message: Message) -> None:
        """Pass on a message of the application, or buffer it."""
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
        # Send the head only together with the first part of the body, because until then the status can still change.
        if not self._has_begun and len(self._kept) < 2:
            return
        self._has_begun = True
        kept, self._kept = self._kept, []
        for message in kept:
            await self._send(message)

    async def refuse(self, scope: Scope, refusal: Refusal) -> None:
        """Answer with a refusal, or with an error event if the stream has already begun."""
        if self._has_begun:
            event = error_event(scope, refusal.body(scope))
            await self._send({"type": "http.response.body", "body": event})
        else:
            await refusal.send(scope, self._send)
