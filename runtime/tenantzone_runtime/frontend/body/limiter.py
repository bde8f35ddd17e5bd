"""Limits the concurrent work behind the frontend, so that the requests of several callers are interleaved."""

import asyncio
from collections import deque
from collections.abc import Hashable


class Limiter:
    """Limits the total weight of admitted entries. Callers take turns; the entries of one caller keep their order.

    The caller whose turn it is waits until there is room for its entry. No other entry, however light, overtakes it.

    Args:
        room: the maximum total weight. A heavier entry is admitted alone.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self._inside = 0
        self._waiting: dict[Hashable, deque[tuple[int, asyncio.Future[None]]]] = {}
        """Non-empty queues by caller; the caller whose turn is next comes first."""

    async def enter(self, weight: int, caller: Hashable = None) -> None:
        """Wait until there is room, and take it.

        Args:
            weight: the weight of the entry.
            caller: the caller in whose turn the entry is admitted; by default, a common caller.
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
                # The entries behind the cancelled one may be lighter, and fit.
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
