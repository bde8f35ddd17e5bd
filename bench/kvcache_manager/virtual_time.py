"""An event loop that skips idle time."""

import asyncio
import selectors
from typing import Any


class _Hurry(selectors.DefaultSelector):
    """A selector that never waits, but adds up the waits as virtual time."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        """Returns the events that are ready; if none is, advances the virtual time by the timeout."""
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
        """Returns the virtual time, in seconds."""
        return self._hurry.now


class Core:
    """A simulated CPU core that does one piece of work at a time, in FIFO order."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self.busy_seconds = 0.0

    async def spend(self, seconds: float) -> None:
        """Wait until the core is free, then use it for some seconds."""
        async with self._turn:
            self.busy_seconds += seconds
            await asyncio.sleep(seconds)
