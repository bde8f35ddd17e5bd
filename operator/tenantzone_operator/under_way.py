"""Writes that take long, and go on by themselves: one that hangs keeps nobody waiting."""

import asyncio
import logging
from collections.abc import Coroutine

from tenantzone_operator.api import explain, is_gone
from tenantzone_operator.rest import RestError

logger = logging.getLogger(__name__)

LATE_SECONDS = 0.5
"""A write that takes longer is late: nobody waits for it any more."""


class UnderWay:
    """Which objects are being written, so that each is written once at a time."""

    def __init__(self) -> None:
        self._writes: dict[str, asyncio.Task[None]] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._writes

    def __bool__(self) -> bool:
        return bool(self._writes)

    async def make(self, uid: str, write: Coroutine[None, None, None]) -> None:
        """Make a write of an object, and wait for it, but not for long.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: it failed in time. What fails later is only logged.
        """
        writing = self._writes[uid] = asyncio.create_task(write)
        try:
            await asyncio.wait([writing], timeout=LATE_SECONDS)
        except asyncio.CancelledError:
            writing.cancel()
            raise
        finally:
            if writing.done():
                del self._writes[uid]
            else:
                writing.add_done_callback(lambda done: self._ended(uid, done))
        if writing.done():
            writing.result()

    def _ended(self, uid: str, writing: asyncio.Task[None]) -> None:
        del self._writes[uid]
        error = None if writing.cancelled() else writing.exception()
        if isinstance(error, Exception) and not (isinstance(error, RestError) and is_gone(error)):
            logger.warning("%s: %s; trying again", writing.get_name(), explain(error))

    async def stop(self) -> None:
        """End all of them."""
        writes = list(self._writes.values())
        for writing in writes:
            writing.cancel()
        await asyncio.gather(*writes, return_exceptions=True)
