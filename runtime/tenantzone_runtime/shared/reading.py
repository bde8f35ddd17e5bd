"""One load on a thread: a chunk from the first of its locations that returns it as it was written."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tenantzone_runtime.disk.sealing import CorruptObjectError
from tenantzone_runtime.disk.transfers import AbandonedError, Memory
from tenantzone_runtime.shared.answers import Location
from tenantzone_runtime.shared.places import PlaceError, place_of
from tenantzone_runtime.shared.queries import Query
from tenantzone_runtime.shared.sealing import Buffers, open_object
from tenantzone_runtime.shared.spaces import SharedZone, Space
from tenantzone_runtime.shared.storages import Storages


@dataclass(eq=False, slots=True)
class LoadedChunk:
    """One chunk that is being loaded from a storage."""

    zone: SharedZone
    query: Query
    """The query of the request that waits for it."""
    space: Space
    key: bytes
    locations: list[Location]
    """The locations, the best first."""
    until: float
    """The monotonic time until which it may be read: its slot may hold another block after that."""
    memory: Memory
    storage: str = ""
    """The storage that was read last."""
    began: float = math.inf
    """The monotonic time when that read began; infinity while it waits for a thread."""
    is_counted: bool = True
    """Whether it counts as being loaded: not once it is late, whatever its storage still does."""

    def read(self, storages: Storages, buffers: Buffers, heard: dict[str, str]) -> Iterator[str]:
        """Load the chunk. The memory never receives data that was not stored for it.

        Args:
            storages: the storages.
            buffers: buffers of the size of an object.
            heard: receives the outcome of each storage by name: why it failed, or empty if it answered, even if only
                that the chunk is missing.

        Yields:
            The name of each storage before it is read.

        Raises:
            CorruptObjectError: no location has what was written.
            OSError: no location can be read; ``FileNotFoundError`` if the chunk is gone.
            AbandonedError: no request waits for it any more.
        """
        last: Exception = FileNotFoundError("it has no location")
        for location in self.locations:
            self._check_use()
            self.storage, self.began = location.storage, math.inf
            yield location.storage
            self._check_use()
            self.began = time.monotonic()
            try:
                self._read_from(location, storages, buffers)
            except (FileNotFoundError, CorruptObjectError) as error:
                heard[location.storage], last = "", error
            except (OSError, PlaceError) as error:
                heard[location.storage] = str(error) or type(error).__name__
                last = error if isinstance(error, OSError) else OSError(str(error))
            else:
                heard[location.storage] = ""
                return
        raise last

    def _check_use(self) -> None:
        """Check that the chunk is still wanted, and may still be read."""
        if time.monotonic() >= self.until:
            raise FileNotFoundError("its lease is over")
        if not self.memory.is_wanted:
            raise AbandonedError

    def _read_from(self, location: Location, storages: Storages, buffers: Buffers) -> None:
        sealed = buffers.of_this_thread()
        place = place_of(location, self.space.instance, self.key, buffers.size)
        if not storages.read(place, sealed):
            raise CorruptObjectError("the object has another size")
        self.memory.use(lambda view: open_object(self.space.seal, sealed, self.key, location.id, view))
