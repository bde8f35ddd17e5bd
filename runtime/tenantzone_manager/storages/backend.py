"""The interface of a storage. Engines access a storage directly, at the URIs that the manager returns.

The manager itself reads and writes bytes only to copy them from one storage to another.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tenantzone_contract.text import printable
from tenantzone_manager.core.records import CacheLocation, LocationSpec


class Place(NamedTuple):
    """One location of one block, and everything else that appears in the names of the location's objects."""

    group: str
    instance: str
    key: bytes
    location: CacheLocation


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in a storage, as parsed from its name."""

    group: str
    instance: str
    key: bytes
    location_id: str
    name: str
    """Name of the object in the storage."""
    written_at: float
    """Unix time at which the object was written."""


class StorageError(Exception):
    """A storage operation failed. The message says why."""


class PlaceTaken(StorageError):
    """Another storage of the same index owns the place, such as the folder or the bucket.

    Args:
        place: human-readable description of the place.
        owner: name of the storage that owns the place.
        storage: name of the storage that tried to claim the place.
    """

    def __init__(self, place: str, owner: str, storage: str) -> None:
        super().__init__(
            f"{place} belongs to the storage {printable(owner)}, whose blocks {storage} would overwrite; change the "
            f"options of {storage}, or remove {printable(owner)} first"
        )
        self.owner = owner


MAX_OWNER_BYTES: Final = 1024
"""Maximum number of bytes to read from an ``owner`` file, because any client with write access can replace the file."""


class Claim:
    """The claim of a storage to its place, such as a folder. An ``owner`` file there contains ``INDEX/STORAGE``.

    Args:
        index: name of the index to which the storage belongs.
        storage: name of the storage.
        takeover: whether the storage may take the place from another index, but only once. The objects of the other
            index are then removed as orphans.
    """

    def __init__(self, index: str, storage: str, takeover: bool) -> None:
        self.index = index
        self.text = f"{index}/{storage}"
        self._storage = storage
        self._takeover = takeover
        self.unregistered = ""
        """Name of a storage that is no longer registered, whose place may be taken over; empty for none."""

    def has_to_write(self, found: str, place: str) -> bool:
        """Returns whether the owner file must be written before the place is used.

        Args:
            found: content of the owner file, or empty if the file does not exist.
            place: human-readable description of the place.

        Raises:
            PlaceTaken: another storage of this index owns the place.
            StorageError: another index owns the place, and ``takeover`` is false.
        """
        index, _, storage = found.partition("/")
        if found == self.text:
            return False
        if not found or (index == self.index and storage == self.unregistered):
            return True
        if index == self.index:
            raise PlaceTaken(place, storage, self._storage)
        if self._takeover:
            return True
        raise StorageError(
            f"{place} belongs to the index {printable(index)}, not to {self.index}; register the storage with the "
            "option takeover to remove the blocks of the other index"
        )

    def is_made(self) -> None:
        """Record that the storage has claimed its place, so that it does not take over the place a second time."""
        self._takeover = False


class DataStorageBackend(ABC):
    """One storage. All asynchronous methods may raise :class:`StorageError`.

    Args:
        claim: claim to the place. Nothing is changed in the place while another storage owns it.
    """

    def __init__(self, claim: Claim) -> None:
        self.claim = claim

    slots_per_file = 0
    """Number of slots in a large file, or 0 if each part of a location is a separate object."""

    @abstractmethod
    def uri(self, place: Place, spec: LocationSpec) -> str:
        """Returns the URI of a part. Its parameters are ``size`` and, in a large file, ``blkid`` and ``offset``."""

    @abstractmethod
    async def create(self, places: Sequence[Place]) -> None:
        """Prepare these places for writing."""

    @abstractmethod
    async def delete(self, places: Sequence[Place]) -> None:
        """Delete all parts at these places. Missing parts are ignored."""

    @abstractmethod
    async def exist(self, places: Sequence[Place]) -> list[bool]:
        """Returns, for each place, whether all its parts exist."""

    @abstractmethod
    async def read(self, place: Place, spec: LocationSpec) -> bytes:
        """Returns the bytes of a part.

        Raises:
            StorageError: the part can't be read, or has a different size.
        """

    @abstractmethod
    async def write(self, place: Place, spec: LocationSpec, content: bytes) -> None:
        """Write a part at a place prepared by ``create``. After this call, reads return the complete part."""

    @abstractmethod
    async def check_health(self) -> None:
        """Check that the storage works, and claim its place.

        Raises:
            PlaceTaken: another storage of the index owns the place.
            StorageError: the storage can't be read or written now, or another index owns the place.
        """

    @abstractmethod
    def objects(self) -> AsyncIterator[list[StoredObject]]:
        """Generates, in batches, all objects whose names are names of parts. Slots of large files are not included."""

    @abstractmethod
    async def remove(self, objects: Sequence[StoredObject]) -> None:
        """Delete objects that the method ``objects`` has returned."""

    async def close(self) -> None:  # noqa: B027 - most subclasses have nothing to close
        """Close connections."""


def slot_bytes(size: int) -> int:
    """Returns the size of a slot for a part: ``size``, rounded up to whole pages, so that I/O needs no copy."""
    return -(-size // 4096) * 4096


def part_name(place: Place, spec: LocationSpec) -> str:
    """Returns the name of a part within its instance. No other write ever uses the same name."""
    return f"{place.key.hex()}-{place.location.id}.{spec.name}"


def parsed_part(name: str) -> tuple[bytes, str] | None:
    """Returns the block key and the location id in ``name``, or None if ``name`` is not the name of a part."""
    key, hyphen, rest = name.partition("-")
    location_id, dot, spec = rest.partition(".")
    try:
        return (bytes.fromhex(key), location_id) if hyphen and dot and location_id and spec else None
    except ValueError:
        return None
