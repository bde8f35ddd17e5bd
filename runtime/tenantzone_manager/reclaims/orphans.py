"""The orphan scan: removes stored objects without a record. Late writers or a lost index may leave such objects."""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence

from tenantzone_manager.index.meta_index import MetaIndex
from tenantzone_manager.index.search_cache import Entry
from tenantzone_manager.storages.backend import StorageError, StoredObject
from tenantzone_manager.storages.data_storage_manager import DataStorageManager
from tenantzone_manager.timing import ORPHAN_GRACE_SECONDS

_log = logging.getLogger(__name__)


class OrphanScan:
    """Looks up each object of all storages in the index, and removes objects without a record.

    If the index does not answer, the scan ends, so no object is removed because of an outage. A storage that belongs to
    another index counts as unhealthy and is skipped.

    Args:
        index: records of blocks.
        storages: storages to scan.
        clock: returns Unix time.
        grace: age in seconds below which objects are kept.
    """

    def __init__(
        self,
        index: MetaIndex,
        storages: DataStorageManager,
        clock: Callable[[], float],
        grace: float = ORPHAN_GRACE_SECONDS,
    ) -> None:
        self._index = index
        self._storages = storages
        self._clock = clock
        self._grace = grace

    async def scan(self) -> int:
        """Remove all orphans; returns the number of removed objects.

        If a storage fails, its remaining orphans are left for the next scan.

        Raises:
            IndexUnavailable: the index does not answer.
        """
        removed = 0
        for state in self._storages.states():
            name = state.storage.name
            if not self._storages.is_available(name):
                continue
            try:
                async for some in state.backend.objects():
                    orphans = await self._orphans(some)
                    if orphans:
                        await state.backend.remove(orphans)
                        removed += len(orphans)
            except StorageError as error:
                _log.warning("storage %s: objects without a record are left for the next scan: %s", name, error)
        return removed

    async def _orphans(self, objects: list[StoredObject]) -> list[StoredObject]:
        newest = self._clock() - self._grace
        by_space: dict[str, list[StoredObject]] = defaultdict(list)
        for each in objects:
            if each.written_at < newest:
                by_space[f"blocks/{each.group}/{each.instance}"].append(each)
        orphans = []
        for space, old in by_space.items():
            found = await self._index.get(space, [each.key for each in old])
            suspects = _without_record(old, found)
            # Look up the suspects again in the store, because the search cache may be stale.
            found = await self._index.get_stored(space, [each.key for each in suspects])
            orphans += _without_record(suspects, found)
        return orphans


def _without_record(objects: Sequence[StoredObject], found: Sequence[Entry | None]) -> list[StoredObject]:
    return [
        each
        for each, entry in zip(objects, found, strict=True)
        if entry is None or not any(location.id == each.location_id for location in entry.value.locations)
    ]
