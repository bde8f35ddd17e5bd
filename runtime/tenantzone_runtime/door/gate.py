"""Lets a tenant's requests to what is behind the door a few at a time, so that others' come between them."""

import asyncio
from collections import deque


class Gate:
    """Lets so much weight in at a time, in the order in which it came.

    Args:
        room: for weight. What is heavier than all of it goes in alone.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._inside = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, weight: int) -> None:
        """Wait until there is room, and take it."""
        weight = min(weight, self._room)
        if not self._waiting and self._inside + weight <= self._room:
            self._inside += weight
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((weight, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                # Whoever is behind it may be lighter.
                self._let_in()
            else:
                self.leave(weight)
            raise

    def leave(self, weight: int) -> None:
        """Give back the room that so much weight has taken."""
        self._inside -= min(weight, self._room)
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            weight, turn = self._waiting[0]
            if not turn.cancelled():
                if self._inside + weight > self._room:
                    return
                self._inside += weight
                turn.set_result(None)
            self._waiting.popleft()
