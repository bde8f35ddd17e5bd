"""Whose a place is: of one storage of one index, which an ``owner`` file there names as ``INDEX/STORAGE``."""

from tenantzone_manager.storages.backend import StorageError


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
    """The claim of one storage to its place.

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
        self._unregistered: set[str] = set()

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
        if not found or (index == self.index and (not storage or storage in self._unregistered)):
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

    def outlives(self, storage: str) -> None:
        """Another storage of this index is registered no more, and owns nothing."""
        self._unregistered.add(storage)
