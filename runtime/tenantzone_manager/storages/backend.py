"""The interface of a storage. Engines read and write it directly, at the URIs that they are given.

The manager reads and writes bytes only to copy them from one storage to another.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tenantzone_manager.core.records import CacheLocation, LocationSpec


class Place(NamedTuple):
    """One location of one block, with everything that its names consist of."""

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
    """The storage's own name of it."""
    written_at: float
    """Unix time."""


class StorageError(Exception):
    """A storage operation failed; the message says why."""


class PlaceTaken(StorageError):
    """Another storage of the same index owns the place.

    Args:
        place: the place, for people.
        owner: name of the owning storage.
        storage: name of the storage that wants the place.
    """

    def __init__(self, place: str, owner: str, storage: str) -> None:
        super().__init__(
            f"{place} is the place of the storage {owner}, and {storage} would overwrite its blocks; give {storage} "
            f"another place, or remove {owner} first"
        )
        self.owner = owner


class Claim:
    """The claim of one storage of one index to its place, in whose ``owner`` file is ``INDEX/STORAGE``.

    Args:
        index: name of the index.
        storage: name of the storage.
        takeover: whether to take the place from another index, once. The other index's objects are removed as orphans.
    """

    def __init__(self, index: str, storage: str, takeover: bool) -> None:
        self.index = index
        self.text = f"{index}/{storage}"
        self._storage = storage
        self._takeover = takeover
        self.unregistered = ""
        """Another storage of this index that is no longer registered, so it owns nothing."""

    def has_to_write(self, found: str, place: str) -> bool:
        """Returns whether the owner file must be written before the place is used.

        Args:
            found: content of the file; empty: there is none.
            place: the place, for people.

        Raises:
            PlaceTaken: another storage of this index owns the place.
            StorageError: another index owns the place.
        """
        index, _, storage = found.partition("/")
        if found == self.text:
            return False
        # Earlier versions wrote only the index.
        if not found or (index == self.index and storage in ("", self.unregistered)):
            return True
        if index == self.index:
            raise PlaceTaken(place, storage, self._storage)
        if self._takeover:
            return True
        raise StorageError(
            f"{place} belongs to the index {index}, and this is {self.index}; register the storage with the option "
            "takeover to have what that one wrote removed"
        )

    def is_made(self) -> None:
        """Note that the storage owns the place. A later takeover by another index is not undone."""
        self._takeover = False


class DataStorageBackend(ABC):
    """One storage. Asynchronous methods may raise :class:`StorageError`.

    Args:
        claim: claim to the place, which is not touched while another storage owns it.
    """

    def __init__(self, claim: Claim) -> None:
        self.claim = claim

    slots_per_file = 0
    """The number of slots in a large file; 0: each part of a location is a separate object."""

    @abstractmethod
    def uri(self, place: Place, spec: LocationSpec) -> str:
        """Returns the URI of a part, with its ``size``, and in a large file with its ``blkid`` and ``offset``."""

    @abstractmethod
    async def create(self, places: Sequence[Place]) -> None:
        """Prepare these places for writing."""

    @abstractmethod
    async def delete(self, places: Sequence[Place]) -> None:
        """Delete all parts at these places; missing ones are ignored."""

    @abstractmethod
    async def exist(self, places: Sequence[Place]) -> list[bool]:
        """Returns, for each place, whether all its parts exist."""

    @abstractmethod
    async def read(self, place: Place, spec: LocationSpec) -> bytes:
        """Returns a part's bytes.

        Raises:
            StorageError: it can't be read, or has another size.
        """

    @abstractmethod
    async def write(self, place: Place, spec: LocationSpec, content: bytes) -> None:
        """Write a part at a place prepared by ``create``; later reads return all of it."""

    @abstractmethod
    async def check_health(self) -> None:
        """Check that the storage works, and claim its place.

        Raises:
            PlaceTaken: another storage of the index owns the place.
            StorageError: it can't be read or written now, or another index owns the place.
        """

    @abstractmethod
    def objects(self) -> AsyncIterator[list[StoredObject]]:
        """Yields lists of all objects with names of parts; slots of large files are not included."""

    @abstractmethod
    async def remove(self, objects: Sequence[StoredObject]) -> None:
        """Delete listed objects."""

    async def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close connections."""


def slot_bytes(size: int) -> int:
    """Returns the slot size for a part: whole pages, so that it can be read and written without a copy."""
    return -(-size // 4096) * 4096


def part_name(place: Place, spec: LocationSpec) -> str:
    """Returns a part's name within its instance, which no other write ever uses."""
    return f"{place.key.hex()}-{place.location.id}.{spec.name}"


def parsed_part(name: str) -> tuple[bytes, str] | None:
    """Returns the key and location id in a part's name; None: it is not the name of a part."""
    key, hyphen, rest = name.partition("-")
    location_id, dot, spec = rest.partition(".")
    try:
        return (bytes.fromhex(key), location_id) if hyphen and dot and location_id and spec else None
    except ValueError:
        return None
