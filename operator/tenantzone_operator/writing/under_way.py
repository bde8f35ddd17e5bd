"""Runs long writes in the background, so that a hanging write does not delay others."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tenantzone_operator.kube.api import explain, is_gone
from tenantzone_operator.kube.rest import RestError

logger = logging.getLogger(__name__)

LATE_SECONDS = 0.5
"""Seconds that the caller waits for a write before the write continues in the background."""

_AT_ONCE_IN_A_NAMESPACE = 8


class WritingSlots(asyncio.Semaphore):
    """Limits the concurrent writes of one namespace, so that hanging writes do not block other namespaces."""

    def __init__(self) -> None:
        super().__init__(_AT_ONCE_IN_A_NAMESPACE)


class UnderWay:
    """Tracks the writes in flight of a pool's objects, so that each object has at most one.

    Args:
        slots: the slots of the pool's namespace.
    """

    def __init__(self, slots: WritingSlots) -> None:
        self._slots = slots
        self._writes: dict[str, asyncio.Task[None]] = {}
        self.ended = 0
        """Number of late writes that have ended, successfully or not."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._writes

    def __bool__(self) -> bool:
        return bool(self._writes)

    @property
    def has_room(self) -> bool:
        """Whether another write of the namespace can start immediately."""
        return not self._slots.locked()

    async def make(self, uid: str, name: str, write: Callable[[], Awaitable[None]]) -> None:
        """Start a write of an object, and wait briefly for it.

        Args:
            uid: the object's uid.
            name: the object's name in the log.
            write: makes the write.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: the write failed in time. A later failure is only logged.
        """
        writing = self._writes[uid] = asyncio.create_task(self._in_a_slot(write), name=name)
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

    async def _in_a_slot(self, write: Callable[[], Awaitable[None]]) -> None:
        async with self._slots:
            await write()

    def _ended(self, uid: str, writing: asyncio.Task[None]) -> None:
        del self._writes[uid]
        self.ended += 1
        error = None if writing.cancelled() else writing.exception()
        if isinstance(error, Exception) and not (isinstance(error, RestError) and is_gone(error)):
            logger.warning("the status of %s: %s; retrying", writing.get_name(), explain(error))

    async def stop(self) -> None:
        """Cancel all running writes."""
        writes = list(self._writes.values())
        for writing in writes:
            writing.cancel()
        await asyncio.gather(*writes, return_exceptions=True)
