"""Limits a tenant's concurrent requests behind the frontend, so that other tenants' requests come between them."""

import asyncio
from collections import deque
from collections.abc import Hashable


class Limiter:
    """Limits the total weight of admitted entries. Callers take turns; the entries of one caller keep their order.

    The next caller in turn waits until there is room for its entry. No other entry passes it, however light.

    Args:
        room: the most weight. An entry heavier than this is admitted alone.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self._inside = 0
        self._waiting: dict[Hashable, deque[tuple[int, asyncio.Future[None]]]] = {}
        """By caller, the next one in turn first; none of the queues is empty."""

    async def enter(self, weight: int, caller: Hashable = None) -> None:
        """Wait until there is room, and take it.

        Args:
            weight: of the entry.
            caller: whose turn it takes; callers without one share None.
        """
        weight = min(weight, self.room)
        if not self._waiting and self._inside + weight <= self.room:
            self._inside += weight
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append((weight, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                # The entries behind it may be lighter.
                self._let_in()
            else:
                self.leave(weight)
            raise

    def leave(self, weight: int) -> None:
        """Release the room that ``weight`` has taken."""
        self._inside -= min(weight, self.room)
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            caller = next(iter(self._waiting))
            queue = self._waiting[caller]
            weight, turn = queue[0]
            is_gone = turn.cancelled()
            if not is_gone:
                if self._inside + weight > self.room:
                    return
                self._inside += weight
                turn.set_result(None)
            queue.popleft()
            if not queue:
                del self._waiting[caller]
            elif not is_gone:
                self._waiting[caller] = self._waiting.pop(caller)
