"""What the manager asks of a storage. Engines read and write it by themselves, at the URIs that they are given.

The manager reads and writes bytes only to copy them from one storage to another.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tenantzone_manager.core.records import CacheLocation, LocationSpec


class Place(NamedTuple):
    """One location of one block, by all that its names are made of."""

    group: str
    instance: str
    key: bytes
    location: CacheLocation


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What lies in a storage, as its name tells."""

    group: str
    instance: str
    key: bytes
    location_id: str
    name: str
    """The storage's own name for it."""
    written_at: float
    """Unix time."""


class StorageError(Exception):
    """A storage does not do what it was asked; the message says why."""


class PlaceTaken(StorageError):
    """Another storage of the same index owns the place.

    Args:
        place: where it is, for people.
        owner: the other storage's name.
        storage: the name of the one that wants the place.
    """

    def __init__(self, place: str, owner: str, storage: str) -> None:
        super().__init__(
            f"{place} is the place of the storage {owner}, and {storage} would overwrite its blocks; give {storage} "
            f"another place, or remove {owner} first"
        )
        self.owner = owner


class Claim:
    """The claim of one storage of one index to its place, where an ``owner`` file says ``INDEX/STORAGE``.

    Args:
        index: the name of the index.
        storage: the storage's name.
        takeover: whether to take the place from another index, once. What that one wrote is removed as orphans.
    """

    def __init__(self, index: str, storage: str, takeover: bool) -> None:
        self.index = index
        self.text = f"{index}/{storage}"
        self._storage = storage
        self._takeover = takeover
        self.unregistered = ""
        """Another storage of this index that is registered no more, and owns nothing."""

    def has_to_write(self, found: str, place: str) -> bool:
        """Whether the owner's file is to be written before the place is used.

        Args:
            found: what the file has; empty: there is none.
            place: where it is, for people.

        Raises:
            PlaceTaken: another storage of this index owns the place.
            StorageError: another index does.
        """
        index, _, storage = found.partition("/")
        if found == self.text:
            return False
        # A version before this one wrote the index only.
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
        """The place is this storage's: whoever takes it over later keeps it."""
        self._takeover = False


class DataStorageBackend(ABC):
    """One storage. Methods that wait may raise :class:`StorageError`.

    Args:
        claim: to the place, which is left alone while another storage owns it.
    """

    def __init__(self, claim: Claim) -> None:
        self.claim = claim

    slots_per_file = 0
    """0: each part of a location is an object of its own. Else parts lie in large files of so many slots."""

    @abstractmethod
    def uri(self, place: Place, spec: LocationSpec) -> str:
        """Where a part of a location lies, with its ``size``, and in a large file with its ``blkid`` and ``offset``."""

    @abstractmethod
    async def create(self, places: Sequence[Place]) -> None:
        """Have it possible to write there."""

    @abstractmethod
    async def delete(self, places: Sequence[Place]) -> None:
        """Have what lies there go; harmless where nothing does."""

    @abstractmethod
    async def exist(self, places: Sequence[Place]) -> list[bool]:
        """Whether all parts of each are there."""

    @abstractmethod
    async def read(self, place: Place, spec: LocationSpec) -> bytes:
        """A part's bytes.

        Raises:
            StorageError: it can't be read, or is not as long as it must be.
        """

    @abstractmethod
    async def write(self, place: Place, spec: LocationSpec, content: bytes) -> None:
        """Write a part where ``create`` has made that possible; who reads it after this reads all of it."""

    @abstractmethod
    async def check_health(self) -> None:
        """Try it, and claim its place.

        Raises:
            PlaceTaken: another storage of the index owns the place.
            StorageError: it can't be read or written now, or another index owns the place.
        """

    @abstractmethod
    def objects(self) -> AsyncIterator[list[StoredObject]]:
        """All objects that have the names of parts, some at a time; none of what lies in large files."""

    @abstractmethod
    async def remove(self, objects: Sequence[StoredObject]) -> None:
        """Have objects go that were listed."""

    async def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Let go of connections."""


def slot_bytes(size: int) -> int:
    """Of the slot for a part of this size: whole pages, so that it can be read and written without a copy."""
    return -(-size // 4096) * 4096


def part_name(place: Place, spec: LocationSpec) -> str:
    """A part's name within its instance: no other write ever has the same."""
    return f"{place.key.hex()}-{place.location.id}.{spec.name}"


def parsed_part(name: str) -> tuple[bytes, str] | None:
    """Key and location of a part's name; None: it is none."""
    key, hyphen, rest = name.partition("-")
    location_id, dot, spec = rest.partition(".")
    try:
        return (bytes.fromhex(key), location_id) if hyphen and dot and location_id and spec else None
    except ValueError:
        return None
