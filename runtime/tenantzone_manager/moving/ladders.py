"""The available storages between which a group's blocks may move, highest type first."""

from collections.abc import Callable, Sequence
from typing import Final

from tenantzone_manager.core.moving import Rung, ladder
from tenantzone_manager.core.settings import InstanceGroup, Storage
from tenantzone_manager.storages.data_storage_manager import DataStorageManager

RETRY_SECONDS: Final = 30.0
"""Seconds for which no blocks are copied to a storage after it has refused a copy."""


class Ladders:
    """Selects storages for moves. A storage that has refused a copy is excluded for ``RETRY_SECONDS``.

    Args:
        storages: the storages, with their availability.
        clock: returns Unix time.
    """

    def __init__(self, storages: DataStorageManager, clock: Callable[[], float]) -> None:
        self._storages = storages
        self._clock = clock
        self._shunned: dict[str, float] = {}

    def of(self, group: InstanceGroup) -> list[Rung]:
        """Returns a group's available storages as rungs, or an empty list if the group's blocks do not move."""
        return ladder(self._storages.get_available_storage(group.storages)) if group.moves is not None else []

    def below(self, rungs: Sequence[Rung], storage_type: str) -> list[Storage]:
        """Returns the storages below a type that accept copies, in order of preference."""
        types = [rung.type for rung in rungs]
        lower = rungs[types.index(storage_type) + 1 :] if storage_type in types else ()
        return self.that_take(lower)

    def that_take(self, rungs: Sequence[Rung]) -> list[Storage]:
        """Returns the storages of all rungs that accept copies, in order of preference."""
        return [storage for rung in rungs for storage in rung.storages if self.takes(storage.name)]

    def takes(self, storage: str) -> bool:
        """Returns whether a storage accepts copies, because it is available and has not refused a copy recently."""
        return self._storages.is_available(storage) and self._shunned.get(storage, 0.0) <= self._clock()

    def shun(self, storage: str) -> None:
        """Exclude a storage for ``RETRY_SECONDS`` because it has refused a copy."""
        self._shunned[storage] = self._clock() + RETRY_SECONDS
