"""Creates the parts of new locations: separate objects, or slots of large files allocated in the same commit."""

from collections.abc import Iterable, Mapping, Sequence

from tenantzone_manager import spaces
from tenantzone_manager.core.records import LocationSpec
from tenantzone_manager.core.settings import Spec
from tenantzone_manager.core.slots import SlotFile
from tenantzone_manager.index.backend import Address
from tenantzone_manager.index.meta_index import Found, MetaIndex
from tenantzone_manager.storages.backend import slot_bytes
from tenantzone_manager.storages.data_storage_manager import DataStorageManager
from tenantzone_manager.writes.slot_files import SlotFiles, file_key

Files = Mapping[tuple[str, int], Sequence[Address]]
"""Addresses of the records of large files, by storage and slot size."""


class SlotsShort(Exception):
    """The chosen large files have fewer free slots than this process remembered."""


class Parts:
    """Creates the parts of new locations.

    Args:
        index: records of large files.
        storages: all storages. Some storages use large files.
    """

    def __init__(self, index: MetaIndex, storages: DataStorageManager) -> None:
        self._index = index
        self._storages = storages
        self._slot_files = SlotFiles(index)

    async def files(
        self, group: str, wanted: Iterable[tuple[str, Sequence[Spec]]]
    ) -> dict[tuple[str, int], list[Address]]:
        """Returns the addresses of large files with enough free slots, by storage and slot size.

        Args:
            group: name of the group.
            wanted: storage and parts of each block to write.
        """
        counts: dict[tuple[str, int], int] = {}
        for storage, specs in wanted:
            if self._slots_per_file(storage):
                for spec in specs:
                    at = storage, slot_bytes(spec.size)
                    counts[at] = counts.get(at, 0) + 1
        files = {}
        for (storage, size), count in counts.items():
            space = spaces.slots_of(group, storage)
            numbers = await self._slot_files.choose(space, size, self._slots_per_file(storage), count)
            files[storage, size] = [Address(space, file_key(size, number)) for number in numbers]
        return files

    def take(
        self, storage: str, specs: Sequence[Spec], files: Files, found: Found, changed: dict[Address, SlotFile]
    ) -> tuple[LocationSpec, ...]:
        """Returns the parts of one location. If the storage uses large files, slots are allocated for these parts.

        Args:
            storage: name of the storage.
            specs: parts of the location.
            files: large files in which slots may be allocated.
            found: the records that were read, including those of the files.
            changed: receives the changed records of the files.

        Raises:
            SlotsShort: none of the files has a free slot.
        """
        if not self._slots_per_file(storage):
            return tuple(LocationSpec(spec.name, spec.size) for spec in specs)
        parts = []
        for spec in specs:
            size = slot_bytes(spec.size)
            for address in files[storage, size]:
                known = changed.get(address) or found[address]
                file, slots = (known or SlotFile(size, self._slots_per_file(storage))).take(1)
                if slots:
                    changed[address] = file
                    parts.append(LocationSpec(spec.name, spec.size, slots[0], _number(address)))
                    break
            else:
                raise SlotsShort
        return tuple(parts)

    async def look_again(self, files: Files) -> None:
        """Read the records of large files again, and remember how many free slots the files have."""
        for addresses in files.values():
            for address in addresses:
                (entry,) = await self._index.get(address.space, [address.key])
                if entry is not None:
                    self.note({address: entry.value})

    def note(self, changed: Mapping[Address, SlotFile]) -> None:
        """Remember how many free slots these changed files have."""
        for address, file in changed.items():
            self._slot_files.note(address.space, _number(address), file)

    def _slots_per_file(self, storage: str) -> int:
        backend = self._storages.backend(storage)
        return backend.slots_per_file if backend else 0


def addresses_of(files: Files) -> list[Address]:
    """Returns the addresses of the records of all these files."""
    return [address for addresses in files.values() for address in addresses]


def _number(address: Address) -> int:
    return int(address.key.partition(b"/")[2])
