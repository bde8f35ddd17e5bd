"""Turns: splits long calls into parts, and schedules the parts of all callers round-robin.

An index in a file never suspends the calling task. Without turns, a call with thousands of blocks would therefore block
the event loop until the call ends.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Final

from tenantzone_manager.core.settings import Instance

READ_AT_ONCE: Final = 256
"""Maximum number of blocks to look up, or to encode into an answer, in one part of a call."""
WRITE_AT_ONCE: Final = 32
"""Maximum number of blocks to change in one part of a call."""
IN_BACKGROUND: Final = ""
"""Caller name under which all background work takes turns. No other caller has this name."""

ROUNDS_BETWEEN: Final = 4
"""Number of iterations of the event loop between two turns.

A small call needs no turn, and takes this many iterations from its first byte to its answer. Therefore, a small call
waits for at most one turn of another call.
"""


class Turns:
    """Gives turns to callers, round-robin. Between two turns, the event loop handles calls that need no turn."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Calls that wait for a turn, by caller. The first caller in the dictionary gets the next turn."""

    async def take(self, caller: str) -> None:
        """Wait for the caller's next turn. In each turn, the caller may process one part of a call.

        Args:
            caller: name of the caller. All calls of one caller share its turns.
        """
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._give, ROUNDS_BETWEEN)
        self._waiting.setdefault(caller, deque()).append(turn)
        await turn

    async def parts(self, caller: str, count: int, at_once: int) -> AsyncIterator[slice]:
        """Generates slices of a call's blocks: the first immediately, and each further slice after waiting for a turn.

        Do not break out of the loop, because closing an async generator early costs an additional task.

        Args:
            caller: name of the caller.
            count: number of blocks.
            at_once: maximum number of blocks in a part.
        """
        for part in parts_of(count, at_once):
            if part.start:
                await self.take(caller)
            yield part

    def _give(self, rounds: int) -> None:
        if rounds:
            asyncio.get_running_loop().call_soon(self._give, rounds - 1)
            return
        is_given = False
        while self._waiting and not is_given:
            caller = next(iter(self._waiting))
            queue = self._waiting.pop(caller)
            turn = queue.popleft()
            if queue:
                self._waiting[caller] = queue
            # A call that was cancelled while it waited gets no turn.
            if is_given := not turn.done():
                turn.set_result(None)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._give, ROUNDS_BETWEEN)


def caller_of(instance: Instance) -> str:
    """Returns the caller name under which calls for an instance take turns."""
    return instance.pool or instance.name


def parts_of(count: int, at_once: int) -> Iterator[slice]:
    """Returns slices of at most ``at_once`` blocks that together cover ``count`` blocks."""
    return (slice(begin, min(begin + at_once, count)) for begin in range(0, count, at_once))
