"""Claims: blocks that are kept in a step for requests within their zones' reservations, so that each is there once."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Claims(Generic[T]):
    """How many blocks are kept for which request, in one step."""

    def __init__(self) -> None:
        self._blocks: dict[T, int] = {}
        self.total = 0

    def keep(self, work: T, count: int) -> None:
        """Keep so many blocks for a request, instead of what was kept for it."""
        self.drop(work)
        self._blocks[work] = count
        self.total += count

    def drop(self, work: T) -> None:
        """It has its blocks, or does without. Harmless if none were kept for it."""
        self.total -= self._blocks.pop(work, 0)

    def of_others(self, work: T) -> int:
        """What is kept for all other requests."""
        return self.total - self._blocks.get(work, 0)

    def clear(self) -> None:
        """The step is over."""
        self._blocks.clear()
        self.total = 0
