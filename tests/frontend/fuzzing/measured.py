"""Measures how long our code keeps the event loop of vLLM's API server busy, in processor time of one callback.

A plugin for vLLM, which `tests.frontend.fuzzing.server` adds to the engine that it starts; the product does not contain
it. One callback of the loop runs our code and vLLM's in turns: the frontend calls vLLM's application, which sends its
answer through the frontend. So each call from one to the other is wrapped, and a meter divides the time. The time of
Python's garbage collector is not counted: when it runs depends on everything that the process has allocated.
"""

import asyncio
import gc
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from enum import Enum
from functools import wraps
from typing import Any

from tenantzone_runtime.frontend import middleware
from tenantzone_runtime.frontend.responses.answers import App, Receive, Scope, Send
from tenantzone_runtime.frontend.routes import Route
from tenantzone_runtime.frontend.transport import connections
from tenantzone_runtime.settings import Settings

STATE_PATH = "/measured"
"""A GET of this path returns the measurement. With the query ``reset`` the measurement then begins anew."""
NUMBER_HEADER = b"x-fuzz-number"
"""The header by which a client identifies its request."""
_KEPT = 5
"""The number of longest callbacks to keep."""


class Owner(Enum):
    """The owner of the running code."""

    OURS = "ours"
    OTHERS = "others"
    COLLECTOR = "collector"


class Meter:
    """Divides the processor time of one thread's callbacks by the owner of the code."""

    def __init__(self) -> None:
        self._owners: list[Owner] = []
        self._since = 0.0
        self._ours = 0.0
        self._what = ""
        self.longest: list[tuple[float, str]] = []
        """Seconds of our code in one callback, and its actions; the longest first."""

    def enter(self, owner: Owner, what: str) -> None:
        """Starts counting for this owner until `leave`; the first such call begins a callback."""
        self._count()
        if not self._owners:
            self._ours, self._what = 0.0, what
        self._owners.append(owner)

    def leave(self) -> None:
        """Ends the code that was entered last, and resumes the code before it."""
        self._count()
        self._owners.pop()
        if not self._owners:
            self.longest = sorted([*self.longest, (self._ours, self._what)], reverse=True)[:_KEPT]

    def interrupt(self, phase: str) -> None:
        """Leaves out the time of the garbage collector, from the phase "start" to the phase "stop"."""
        if self._owners:
            if phase == "start":
                self.enter(Owner.COLLECTOR, "")
            elif self._owners[-1] is Owner.COLLECTOR:
                self.leave()

    def _count(self) -> None:
        now = time.thread_time()
        if self._owners and self._owners[-1] is Owner.OURS:
            self._ours += now - self._since
        self._since = now


class Owned(Coroutine[Any, Any, Any]):
    """An awaitable whose steps count for its owner.

    Args:
        meter: the meter that counts.
        owner: the owner of the code in the awaitable.
        what: what the awaitable does.
        inner: the awaitable.
    """

    def __init__(self, meter: Meter, owner: Owner, what: str, inner: Awaitable[Any]) -> None:
        self._meter, self._owner, self._what = meter, owner, what
        self._steps: Any = inner if isinstance(inner, Coroutine) else inner.__await__()

    def __await__(self) -> Any:
        return self

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        self._meter.enter(self._owner, self._what)
        try:
            return self._steps.send(value) if hasattr(self._steps, "send") else next(self._steps)
        finally:
            self._meter.leave()

    def throw(self, *error: Any) -> Any:
        self._meter.enter(self._owner, self._what)
        try:
            return self._steps.throw(*error)
        finally:
            self._meter.leave()

    def close(self) -> None:
        self._steps.close()


def owned(meter: Meter, owner: Owner, what: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Returns a function whose awaitables count for their owner."""
    return lambda *arguments: Owned(meter, owner, what, call(*arguments))


class OwnedOutputs:
    """An asynchronous generator whose steps count for its owner."""

    def __init__(self, meter: Meter, owner: Owner, outputs: AsyncIterator[Any]) -> None:
        self._meter, self._owner, self._outputs = meter, owner, outputs

    def __aiter__(self) -> "OwnedOutputs":
        return self

    def __anext__(self) -> Owned:
        return Owned(self._meter, self._owner, "an output of the engine", self._outputs.__anext__())

    def aclose(self) -> Owned:
        return Owned(self._meter, self._owner, "the end of a request", self._outputs.aclose())  # type: ignore[attr-defined]


class MeasuredMiddleware(middleware.TenantMiddleware):
    """The frontend with measurement."""

    def __init__(self, app: App, settings: Settings | None = None) -> None:
        self._meter = Meter()
        self._thread = threading.get_ident()
        self._engines: list[Any] = []
        gc.callbacks.append(self._collected)
        # The frontend opens in there, and wraps vLLM's `generate` in its own.
        self._measure_generate(Owner.OTHERS)
        super().__init__(self._others(app), settings)
        self._measure_generate(Owner.OURS)
        _measure_protocol(self._meter)
        self._longest_check: dict[str, Any] = {}
        self._measure_workers()

    async def _answer_state(self, scope: Scope, send: Send) -> None:
        state = {
            "longest": self._meter.longest,
            "longest_check": self._longest_check,
            "tasks": len(asyncio.all_tasks()),
            "requests_of_the_frontend": sum(tenant.requests for tenant in self._in_flight._tenants.values()),
            "bytes_of_the_frontend": self._in_flight.size,
            "requests_of_the_engine": sum(len(each.output_processor.request_states) for each in self._engines),
        }
        if scope["query_string"] == b"reset":
            self._meter.longest, self._longest_check = [], {}
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(state).encode()})

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        if scope["type"] == "http" and scope["path"] == STATE_PATH:
            return self._answer_state(scope, send)
        numbers = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == NUMBER_HEADER]
        call = super().__call__(
            scope,
            owned(self._meter, Owner.OTHERS, "receive", receive),
            owned(self._meter, Owner.OTHERS, "send", send),
        )
        return Owned(self._meter, Owner.OURS, f"request {' '.join(numbers)} {scope.get('path')}", call)

    def _others(self, app: App) -> App:
        """The application behind the frontend, which calls the frontend's functions to receive and send."""

        def call(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
            ours = [owned(self._meter, Owner.OURS, "the frontend", each) for each in (receive, send)]
            return Owned(self._meter, Owner.OTHERS, "vLLM", app(scope, *ours))

        return call

    def _measure_generate(self, owner: Owner) -> None:
        try:
            from vllm.v1.engine.async_llm import AsyncLLM
        except ModuleNotFoundError:  # in tests of this module there need be none
            return
        generate = AsyncLLM.generate

        @wraps(generate)
        def measured(engine: Any, *arguments: Any, **named: Any) -> OwnedOutputs:
            if engine not in self._engines:
                self._engines.append(engine)
            return OwnedOutputs(self._meter, owner, generate(engine, *arguments, **named))

        AsyncLLM.generate = measured

    def _measure_workers(self) -> None:
        checked = self._intake._checked

        def measured(body: bytes, route: Route, *arguments: Any) -> tuple[int, bytes]:
            began = time.thread_time()
            try:
                return checked(body, route, *arguments)
            finally:
                seconds = time.thread_time() - began
                if threading.get_ident() != self._thread and seconds > self._longest_check.get("seconds", 0.0):
                    self._longest_check = {
                        "seconds": seconds,
                        "parsing_seconds": _parsing_seconds(body),
                        "path": route.path,
                        "body": bytes(body).decode("latin-1"),
                    }

        self._intake._checked = measured  # type: ignore[method-assign]

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        # The collector may run where code recurses as deep as it can, and an exception raised here would be printed.
        with suppress(RecursionError):
            if threading.get_ident() == self._thread:
                self._meter.interrupt(phase)


def _parsing_seconds(body: bytes) -> float:
    """Returns the processor time that Python's JSON parser, and so stock vLLM, takes for a body."""
    began = time.thread_time()
    with suppress(ValueError, RecursionError):
        json.loads(body)
    return time.thread_time() - began


_CALLBACKS = (
    "connection_made", "connection_lost", "data_received", "eof_received", "pause_writing", "resume_writing",
    "_look_at_reader", "_close_late",
)  # fmt: skip


def _measure_protocol(meter: Meter) -> None:
    """Measures the callbacks of the frontend's protocol, with uvicorn's part of it."""
    protocol = connections.BoundedProtocol
    for name in _CALLBACKS:
        setattr(protocol, name, _measured_callback(meter, getattr(protocol, name)))


def _measured_callback(meter: Meter, callback: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(callback)
    def measured(*arguments: Any) -> Any:
        what = bytes(arguments[1][:200]) if callback.__name__ == "data_received" else ""
        meter.enter(Owner.OURS, f"{callback.__name__} {what!r}")
        try:
            return callback(*arguments)
        finally:
            meter.leave()

    return measured


def register() -> None:
    """Replaces the frontend by the measured one; vLLM calls this in each of its processes."""
    middleware.TenantMiddleware = MeasuredMiddleware  # type: ignore[misc]
