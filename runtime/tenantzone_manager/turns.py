"""Turns: long calls are done in parts, and callers take turns, so that no caller holds up the others.

An index in a file never suspends a call, so without turns a call of thousands of blocks would run to its end at once.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Final

from tenantzone_manager.core.settings import Instance

READ_AT_ONCE: Final = 256
"""Blocks that are looked up, or encoded into an answer, in one part of a call."""
WRITE_AT_ONCE: Final = 32
"""Blocks that are changed in one part of a call."""
IN_BACKGROUND: Final = ""
"""The caller whose turns the reclaimer takes, whichever pool's blocks it reclaims. No other caller has this name."""

ROUNDS_BETWEEN: Final = 4
"""Rounds of the event loop between two turns. A small call needs no turn. It takes this many rounds from its first byte
to its answer, so it waits for one turn at most."""


class Turns:
    """Gives callers their turns, one after the other; calls that need no turn are served between two of them."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """The waiting calls by caller. The first caller has the next turn."""

    async def take(self, caller: str) -> None:
        """Wait for the next turn. The caller may do one part of its work then.

        Args:
            caller: all calls of one caller share its turns.
        """
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._give, ROUNDS_BETWEEN)
        self._waiting.setdefault(caller, deque()).append(turn)
        await turn

    async def parts(self, caller: str, count: int, at_once: int) -> AsyncIterator[slice]:
        """The parts of a call for this number of blocks. The first is done at once, each other one in a turn.

        For loops that run to their end: an async generator that is left early costs a task that closes it.

        Args:
            caller: name under which turns are taken.
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
            # A caller that was cancelled while it waited gets no turn.
            if is_given := not turn.done():
                turn.set_result(None)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._give, ROUNDS_BETWEEN)


def caller_of(instance: Instance) -> str:
    """Returns the name under which calls for an instance take turns."""
    return instance.pool or instance.name


def parts_of(count: int, at_once: int) -> Iterator[slice]:
    """Returns the slices of at most ``at_once`` blocks that together make ``count``."""
    return (slice(begin, min(begin + at_once, count)) for begin in range(0, count, at_once))
