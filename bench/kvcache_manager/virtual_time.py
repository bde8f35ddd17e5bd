"""An event loop that skips idle time."""

import asyncio
import selectors
from typing import Any


class _Hurry(selectors.DefaultSelector):
    """Returns from waits at once; the loop's time is the sum of the waits."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        """Returns what is ready now; time passes as if the loop had waited for the rest."""
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualTime(asyncio.SelectorEventLoop):
    """An event loop whose time begins at 0, and advances when all tasks wait. Computation takes no time."""

    def __init__(self) -> None:
        self._hurry = _Hurry()
        super().__init__(self._hurry)

    def time(self) -> float:
        """Virtual seconds."""
        return self._hurry.now


class Core:
    """A core that does one thing after the other, in the order in which they come."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self.busy_seconds = 0.0

    async def spend(self, seconds: float) -> None:
        """Wait for the core to be free, and then for its work."""
        async with self._turn:
            self.busy_seconds += seconds
            await asyncio.sleep(seconds)
