"""Helpers to end tasks that run forever, and to finish work that must not be interrupted by a cancellation."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, Final

_AGAIN_SECONDS: Final = 1.0


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks repeatedly until all of them have ended; ignore their results and exceptions.

    A single cancellation may get lost, because the Redis client uses ``asyncio.wait_for``, which before Python 3.12
    swallows a cancellation that coincides with a result.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=_AGAIN_SECONDS)
        await asyncio.gather(*ended, return_exceptions=True)


async def to_its_end(work: Awaitable[None]) -> None:
    """Wait until ``work`` has ended, even if the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
