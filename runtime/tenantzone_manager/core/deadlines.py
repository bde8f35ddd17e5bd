"""When writers are taken for dead, and whose time does not run."""

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
"""By which a write's locations outlast its deadline, where its call may have to wait for turns."""


class UnderWay:
    """The writes for which a call is under way in this process: their writers wait for it, so they are not dead."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()

    @contextmanager
    def of(self, write_id: str) -> Iterator[None]:
        """Note that a call for this write is under way until the block ends."""
        self._calls[write_id] += 1
        try:
            yield
        finally:
            self._calls[write_id] -= 1
            if not self._calls[write_id]:
                del self._calls[write_id]

    def has(self, location: CacheLocation) -> bool:
        """Returns whether a call for the write that made this location is under way."""
        return any(is_made_by(location.id, write_id) for write_id in self._calls)


def extend(draft: Draft, key: bytes, write_id: str, until: float) -> None:
    """Give the writer of a block more time.

    Args:
        draft: has the block.
        key: of the block.
        write_id: of the write.
        until: when its writer is taken for dead, unless that is later already.
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
    """Have go the locations of a block whose writers are dead.

    Args:
        draft: has the block and its parent.
        key: of the block.
        now: the time.
        due: when no writer can be left at a location that goes.
        is_under_way: whether a call for a location's write is under way: its writer gets more time.

    Returns:
        The locations that go.
    """
    block = draft.get(key)
    late = {each.id for each in locations_due(block, State.WRITING, now) if is_under_way(each)} if block else set()
    if block is not None and late:
        until = now + CALL_SECONDS
        locations = (replace(each, until=until) if each.id in late else each for each in block.locations)
        draft.put(key, replace(block, locations=tuple(locations)))
    return leave(draft, key, lambda each: each.state is State.WRITING and each.until <= now, due)
