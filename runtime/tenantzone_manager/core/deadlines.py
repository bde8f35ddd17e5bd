"""Extends the deadlines of writers, and marks locations for deletion if the writer missed the deadline."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from tenantzone_manager.core.books import locations_due
from tenantzone_manager.core.draft import Draft
from tenantzone_manager.core.records import CacheLocation, State
from tenantzone_manager.core.writing import is_made_by, leave

CALL_SECONDS: Final = 10.0
"""Extra seconds before a writer is presumed dead, because the call of the writer may have to wait for turns."""


class UnderWay:
    """The writes for which this process is handling a call. A writer that waits for an answer is not presumed dead."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()

    @contextmanager
    def of(self, write_id: str) -> Iterator[None]:
        """Mark a call for this write as in progress until the ``with`` block ends."""
        self._calls[write_id] += 1
        try:
            yield
        finally:
            self._calls[write_id] -= 1
            if not self._calls[write_id]:
                del self._calls[write_id]

    def has(self, location: CacheLocation) -> bool:
        """Returns whether a call is in progress for the write that created this location."""
        return any(is_made_by(location.id, write_id) for write_id in self._calls)


def extend(draft: Draft, key: bytes, write_id: str, until: float) -> None:
    """Give the writer of a block more time.

    Args:
        draft: contains the block.
        key: key of the block.
        write_id: id of the write.
        until: new deadline, in Unix seconds; ignored if the current deadline is later.
    """
    block = draft.get(key)
    if block is not None:
        changed = tuple(
            replace(each, until=max(each.until, until))
            if each.state is State.WRITING and is_made_by(each.id, write_id)
            else each
            for each in block.locations
        )
        draft.put(key, replace(block, locations=changed))


def expire(
    draft: Draft, key: bytes, now: float, due: float, is_under_way: Callable[[CacheLocation], bool]
) -> list[CacheLocation]:
    """Mark locations of a block for deletion if their writers are presumed dead.

    Args:
        draft: contains the block and its parent.
        key: key of the block.
        now: current Unix time.
        due: Unix time after which no writer can use a deleted location.
        is_under_way: returns whether a call for a location's write is in progress. If so, the writer gets more time.

    Returns:
        The locations marked for deletion.
    """
    block = draft.get(key)
    late = {each.id for each in locations_due(block, State.WRITING, now) if is_under_way(each)} if block else set()
    if block is not None and late:
        until = now + CALL_SECONDS
        locations = (replace(each, until=until) if each.id in late else each for each in block.locations)
        draft.put(key, replace(block, locations=tuple(locations)))
    return leave(draft, key, lambda each: each.state is State.WRITING and each.until <= now, due)
