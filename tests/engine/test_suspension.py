"""A synchronous call within a coroutine can wait, and everything else in the coroutine stays as it was."""

import asyncio
import gc
import importlib.util
import sys
import weakref
from contextvars import ContextVar

import pytest

from tenantzone_runtime.engine.patches.parsers import suspension
from tenantzone_runtime.engine.patches.parsers.suspension import can_wait, make_suspendable, wait_for

SET_INSIDE: ContextVar[int] = ContextVar("set_inside", default=0)


async def fail():
    raise ValueError("as awaited")


class Serving:
    """Makes synchronous calls that wait, as vLLM calls its parsers."""

    def __init__(self):
        self.ended_with = None

    async def coroutine(self):
        SET_INSIDE.set(1)
        await asyncio.sleep(0)
        result = wait_for(asyncio.sleep(0, "waited for"))
        assert SET_INSIDE.get() == 1
        with pytest.raises(ValueError, match="as awaited"):
            wait_for(fail())
        return result

    async def generator(self, count):
        try:
            for number in range(count):
                await asyncio.sleep(0)
                yield wait_for(asyncio.sleep(0, number)) if number % 2 else number
        finally:
            self.ended_with = "closed"

    async def failing(self):
        await asyncio.sleep(0)
        raise KeyError("as raised")
        yield

    async def stuck(self):
        try:
            wait_for(asyncio.Event().wait())
        except BaseException as error:
            self.ended_with = type(error)
            raise

    async def outer(self):
        return [await self.coroutine(), wait_for(asyncio.sleep(0, "outer")), [each async for each in self.generator(2)]]


for method in ("coroutine", "generator", "failing", "stuck", "outer"):
    make_suspendable(Serving, method)


async def test_a_call_waits_and_gets_the_result_or_the_exception():
    assert await Serving().coroutine() == "waited for"
    assert SET_INSIDE.get() == 1, "in the task's own context"
    assert await Serving().outer() == ["waited for", "outer", [0, 1]]


async def test_others_go_on_while_a_call_waits():
    seen = []

    async def watch(name):
        async for number in Serving().generator(4):
            seen.append((name, number))

    await asyncio.gather(watch("a"), watch("b"))
    assert sorted(seen) == [(name, number) for name in "ab" for number in range(4)]
    assert seen != sorted(seen)


async def test_a_generator_is_closed_and_fails_as_without():
    serving = Serving()
    items = serving.generator(3)
    assert await anext(items) == 0
    await items.aclose()
    assert serving.ended_with == "closed"
    with pytest.raises(KeyError, match="as raised"):
        async for _ in serving.failing():
            pass


async def test_a_call_that_waits_is_cancelled_with_its_task():
    serving = Serving()
    task = asyncio.create_task(serving.stuck())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert serving.ended_with is asyncio.CancelledError


async def test_nothing_is_left_of_a_call_that_has_ended():
    async def call(what):
        serving = Serving()
        left.append(weakref.ref(serving))
        await what(serving)

    async def streamed(serving, at_most=9):
        items = serving.generator(3)
        async for _ in items:
            at_most -= 1
            if not at_most:
                break
        await items.aclose()

    async def failed(serving):
        with pytest.raises(KeyError):
            await anext(serving.failing())

    async def cancelled(serving):
        task = asyncio.create_task(serving.stuck())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    def greenlets():
        gc.collect()
        return sum(type(each) is suspension._Steps for each in gc.get_objects())

    left, before = [], greenlets()
    for what in (Serving.coroutine, Serving.outer, streamed, lambda each: streamed(each, 1), failed, cancelled):
        await call(what)
    assert greenlets() <= before
    assert [each() for each in left] == [None] * 6


async def test_elsewhere_a_call_cannot_wait():
    assert not can_wait()
    waiting = asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="suspendable"):
        wait_for(waiting)
    waiting.close()
    before = Serving.coroutine
    make_suspendable(Serving, "coroutine")
    make_suspendable(Serving, "of_another_version")
    assert Serving.coroutine is before


async def test_a_method_waits_only_where_that_is_needed():
    class Some:
        def __init__(self, is_needed):
            self.is_needed = is_needed

        async def method(self):
            return can_wait()

        async def items(self):
            yield can_wait()

    for name in ("method", "items"):
        make_suspendable(Some, name, lambda instance: instance.is_needed)
    for is_needed in (True, False):
        assert await Some(is_needed).method() is is_needed
        assert [each async for each in Some(is_needed).items()] == [is_needed]


async def test_without_greenlet_nothing_can_wait_and_methods_stay_as_they_are(monkeypatch):
    monkeypatch.setitem(sys.modules, "greenlet", None)
    spec = importlib.util.spec_from_file_location("without_greenlet", suspension.__file__)
    without = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(without)
    assert not without.CAN_SUSPEND
    assert not without.can_wait()

    class Plain:
        async def method(self):
            return without.can_wait()

    before = Plain.method
    without.make_suspendable(Plain, "method")
    assert Plain.method is before
