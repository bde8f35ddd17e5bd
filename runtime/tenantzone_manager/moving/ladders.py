"""Where a group's blocks may move to and from now: its storages that can be used, the highest type first."""

from collections.abc import Callable, Sequence
from typing import Final

from tenantzone_manager.core.moving import Rung, ladder
from tenantzone_manager.core.settings import InstanceGroup, Storage
from tenantzone_manager.storages.data_storage_manager import DataStorageManager

RETRY_SECONDS: Final = 30.0
"""After which something is copied again to a storage that took nothing."""


class Ladders:
    """Knows of storages that take no copies for a while.

    Args:
        storages: which of them can be used.
        clock: Unix time.
    """

    def __init__(self, storages: DataStorageManager, clock: Callable[[], float]) -> None:
        self._storages = storages
        self._clock = clock
        self._shunned: dict[str, float] = {}

    def of(self, group: InstanceGroup) -> list[Rung]:
        """The types of the group's storages; none, if its blocks do not move."""
        return ladder(self._storages.get_available_storage(group.storages)) if group.moves is not None else []

    def below(self, rungs: Sequence[Rung], storage_type: str) -> list[Storage]:
        """Storages below a type that take copies, the first choice first."""
        types = [rung.type for rung in rungs]
        lower = rungs[types.index(storage_type) + 1 :] if storage_type in types else ()
        return self.that_take(lower)

    def that_take(self, rungs: Sequence[Rung]) -> list[Storage]:
        """Storages of these rungs that take copies, the first choice first."""
        return [storage for rung in rungs for storage in rung.storages if self.takes(storage.name)]

    def takes(self, storage: str) -> bool:
        """Whether a storage takes copies now: it can be used, and has not just taken nothing."""
        return self._storages.is_available(storage) and self._shunned.get(storage, 0.0) <= self._clock()

    def shun(self, storage: str) -> None:
        """Have nothing be copied to a storage for a while: it took nothing."""
        self._shunned[storage] = self._clock() + RETRY_SECONDS
