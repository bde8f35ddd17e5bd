"""Helpers that end background tasks, and that protect work from cancellation until the work is done."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, Final

_AGAIN_SECONDS: Final = 1.0


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks repeatedly until all of them have ended; ignore their results and exceptions.

    Cancelling a task once is not enough, because the Redis client uses ``asyncio.wait_for``. Before Python 3.12, that
    function swallows a cancellation that coincides with a result.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=_AGAIN_SECONDS)
        await asyncio.gather(*ended, return_exceptions=True)


async def to_its_end(work: Awaitable[None]) -> None:
    """Wait until ``work`` has ended. If the caller is cancelled meanwhile, ``CancelledError`` is raised afterwards."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
