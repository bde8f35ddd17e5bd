"""Limits the concurrent work behind the frontend, and alternates between callers that wait."""

import asyncio
from collections import deque
from collections.abc import Hashable


class Limiter:
    """Limits the total weight of the entries that are admitted at the same time.

    Waiting callers take turns, and each caller's entries are admitted in their order. If there is no room for the next
    entry, all other entries wait as well, even lighter ones.

    Args:
        room: the maximum total weight. An entry that is heavier than this is admitted alone.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self._inside = 0
        self._waiting: dict[Hashable, deque[tuple[int, asyncio.Future[None]]]] = {}
        """The queue of each caller with waiting entries. The caller whose turn is next comes first."""

    async def enter(self, weight: int, caller: Hashable = None) -> None:
        """Wait until there is room for an entry, and admit it. Call `leave` later to release the entry's room.

        Args:
            weight: the weight of the entry.
            caller: identifies the queue of the entry. Entries without a caller share one queue.
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
                # Admit waiting entries, because the cancelled entry may have blocked lighter entries.
                self._let_in()
            else:
                self.leave(weight)
            raise

    def leave(self, weight: int) -> None:
        """Release the room of an entry with this weight, and admit waiting entries."""
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
