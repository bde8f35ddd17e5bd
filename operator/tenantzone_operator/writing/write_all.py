"""Makes many writes to the API server, a few at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tenantzone_operator.kube.api import is_gone
from tenantzone_operator.kube.rest import RestError

_AT_ONCE = 8

Write = Callable[[], Awaitable[None]]
"""A function that makes one write."""


async def write_all(writes: Sequence[Write], may_go_on: Callable[[], bool] = lambda: True) -> bool:
    """Make all writes, a few concurrently, and ignore failed writes to deleted objects.

    Args:
        writes: the writes to make.
        may_go_on: called before each write; returns False to stop.

    Returns:
        Whether all writes were made.

    Raises:
        RestError, aiohttp.ClientError, TimeoutError: a write failed; the other writes were made nevertheless.
    """
    left = iter(writes)
    failures: list[Exception] = []

    async def make_some() -> None:
        while may_go_on() and (write := next(left, None)) is not None:
            failures.extend(await failures_of(write))

    await asyncio.gather(*(make_some() for _ in range(min(len(writes), _AT_ONCE))))
    for failure in failures:
        raise failure
    return next(left, None) is None


async def failures_of(write: Write) -> list[Exception]:
    """Make one write; returns a list with its error if it failed, or else an empty list.

    A write to a deleted object does not count as failed.
    """
    try:
        await write()
    except Exception as error:
        return [] if isinstance(error, RestError) and is_gone(error) else [error]
    return []
