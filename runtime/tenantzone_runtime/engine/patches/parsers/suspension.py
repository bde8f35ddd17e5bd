"""Lets a synchronous call within a vLLM coroutine wait while the event loop serves other requests.

vLLM calls its parsers from coroutines without awaiting them. This module runs such a coroutine in a greenlet. A call
that must wait switches out of the greenlet with an awaitable. The event loop awaits it, and then switches back.

Upstream change that would make this module unnecessary: vLLM awaits its parsers and runs them in an executor.
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from functools import partial, wraps
from typing import Any, Final, NamedTuple

try:
    from greenlet import getcurrent, greenlet
except ImportError:  # vLLM's image does not contain greenlet
    greenlet, getcurrent = object, object

CAN_SUSPEND: Final = greenlet is not object
"""Whether the package greenlet is installed, so that a synchronous call can wait."""
_MARK: Final = "is_suspendable"


def can_wait() -> bool:
    """Returns whether `wait_for` may be called here."""
    return isinstance(getcurrent(), _Steps)


def wait_for(awaitable: Awaitable[Any]) -> Any:
    """Wait for an awaitable in a synchronous call, and return its result.

    Args:
        awaitable: what to wait for. The current task awaits it.

    Raises:
        RuntimeError: the call was not made within a suspendable method.
    """
    steps = getcurrent()
    if not isinstance(steps, _Steps):
        raise RuntimeError("only a call within a suspendable method can wait")
    return steps.leave_with(_Waiting(awaitable))


def make_suspendable(owner: type, name: str, is_needed: Callable[[Any], bool] = lambda instance: True) -> None:
    """Let calls within a method wait with `wait_for`. Each await of the method then takes about 10 µs longer.

    Does nothing if the method is missing or if `CAN_SUSPEND` is false.

    Args:
        owner: the class that defines the method.
        name: the name of the method, which must be a coroutine function or an asynchronous generator function.
        is_needed: returns whether the method of an instance must be suspendable.
    """
    method = vars(owner).get(name)
    if not CAN_SUSPEND or method is None or hasattr(method, _MARK):
        return
    suspendable = _generator(method) if inspect.isasyncgenfunction(method) else _coroutine(method)

    @wraps(method)
    def call(instance: Any, *args: Any, **kwargs: Any) -> Any:
        return (suspendable if is_needed(instance) else method)(instance, *args, **kwargs)

    setattr(call, _MARK, True)
    setattr(owner, name, call)


def _coroutine(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    @wraps(method)
    async def call(*args: Any, **kwargs: Any) -> Any:
        steps = _Steps()
        try:
            return await _InSteps(method(*args, **kwargs), steps)
        finally:
            steps.end()

    return call


def _generator(method: Callable[..., AsyncGenerator[Any, None]]) -> Callable[..., Any]:
    @wraps(method)
    async def generate(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        items, steps = method(*args, **kwargs), _Steps()
        try:
            while True:
                try:
                    item = await _InSteps(anext(items), steps)
                except StopAsyncIteration:
                    return
                yield item
        finally:
            steps.end()
            await items.aclose()

    return generate


class _Waiting(NamedTuple):
    """Passed out of the greenlet by a synchronous call that waits for an awaitable."""

    awaitable: Awaitable[Any]


class _Done(NamedTuple):
    """The outcome of a step of a coroutine: what it awaits, or the exception that ended it."""

    awaited: Any
    error: BaseException | None


class _Steps(greenlet):
    """The greenlet that runs the steps of one coroutine, each up to the next await."""

    def run(self, step: Callable[[], Any]) -> None:
        """Run steps in an endless loop. Switch out of the greenlet with the outcome of each."""
        while True:
            step = self.leave_with(_done(step))

    def enter(self, value: Any) -> Any:
        """Switch into the greenlet with a value. Returns the value that is passed to the next `leave_with`."""
        here = getcurrent()
        self.parent = here
        # Use the task's context variables, because by default a greenlet has separate context variables.
        self.gr_context = here.gr_context
        return self.switch(value)

    def enter_raising(self, error: BaseException) -> Any:
        """Switch into the greenlet and raise an exception there. Returns like `enter`."""
        self.parent = getcurrent()
        return self.throw(error)

    def end(self) -> None:
        """End the greenlet. Otherwise, Python would never free the greenlet and the objects in its frames."""
        if self:
            self.parent = getcurrent()
            self.throw()

    def leave_with(self, value: Any) -> Any:
        """Switch out of the greenlet with a value. Returns the value that is passed to the next `enter`."""
        assert self.parent is not None
        return self.parent.switch(value)


def _done(step: Callable[[], Any]) -> _Done:
    try:
        return _Done(step(), None)
    except BaseException as error:
        return _Done(None, error)


class _InSteps:
    """Wraps an awaitable so that its steps run in a greenlet."""

    def __init__(self, awaitable: Awaitable[Any], steps: _Steps) -> None:
        self._awaitable = awaitable
        self._steps = steps

    def __await__(self) -> Generator[Any, Any, Any]:
        inner: Any = self._awaitable.__await__()
        step: Callable[[], Any] = inner.__next__
        while True:
            left_with = self._steps.enter(step)
            while isinstance(left_with, _Waiting):
                go_on = yield from _awaited(self._steps, left_with.awaitable)
                left_with = go_on()
            awaited, error = left_with
            if isinstance(error, StopIteration):
                return error.value
            if error is not None:
                raise error
            try:
                value = yield awaited
            except BaseException as thrown:
                step = partial(inner.throw, thrown) if hasattr(inner, "throw") else partial(_raise, thrown)
            else:
                # `__await__` may return an iterator without `send`.
                step = inner.__next__ if value is None else partial(inner.send, value)


def _awaited(steps: _Steps, awaitable: Awaitable[Any]) -> Generator[Any, Any, Callable[[], Any]]:
    """Await the awaitable of a call, and return a function that continues the call."""
    try:
        result = yield from awaitable.__await__()
    except BaseException as error:
        return partial(steps.enter_raising, error)
    return partial(steps.enter, result)


def _raise(error: BaseException) -> Any:
    raise error
