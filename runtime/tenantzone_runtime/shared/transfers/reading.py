"""One load on a thread, which reads a chunk from the first of its locations that returns it intact."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tenantzone_runtime.disk.files.sealing import CorruptObjectError
from tenantzone_runtime.disk.transfers import AbandonedError, Memory
from tenantzone_runtime.shared.manager.answers import Location
from tenantzone_runtime.shared.manager.queries import Query
from tenantzone_runtime.shared.sealing import Buffers, open_object
from tenantzone_runtime.shared.spaces import SharedZone, Space
from tenantzone_runtime.shared.storage.places import PlaceError, place_of
from tenantzone_runtime.shared.storage.storages import Storages


@dataclass(eq=False, slots=True)
class LoadedChunk:
    """One chunk that is being loaded from a storage."""

    zone: SharedZone
    query: Query
    """The query of the request that waits for the chunk."""
    space: Space
    key: bytes
    locations: list[Location]
    """The locations of the chunk, the preferred one first."""
    until: float
    """Monotonic time until which the chunk may be read. After that, its slot may contain another block."""
    memory: Memory
    storage: str = ""
    """The storage that was read last."""
    began: float = math.inf
    """Monotonic time at which the last read began; infinity while it waits for a thread."""
    is_counted: bool = True
    """Whether the chunk counts as being loaded. A late chunk does not, even while its storage is still being read."""

    def read(self, storages: Storages, buffers: Buffers, heard: dict[str, str]) -> Iterator[str]:
        """Load the chunk. The memory never receives data that was not stored for it.

        Args:
            storages: the storages.
            buffers: buffers of the size of an object.
            heard: receives the outcome of each storage by name: its error, or an empty string if it answered, even if
                the chunk is missing or corrupt.

        Yields:
            The name of each storage before it is read.

        Raises:
            CorruptObjectError: the chunk is corrupt at its last location.
            OSError: the last location can't be read; ``FileNotFoundError`` if the chunk is missing.
            AbandonedError: no request waits for the chunk any more.
        """
        last: Exception = FileNotFoundError("the chunk has no location")
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
            raise FileNotFoundError("the chunk's lease has expired")
        if not self.memory.is_wanted:
            raise AbandonedError

    def _read_from(self, location: Location, storages: Storages, buffers: Buffers) -> None:
        sealed = buffers.of_this_thread()
        place = place_of(location, self.space.instance, self.key, buffers.size)
        if not storages.read(place, sealed):
            raise CorruptObjectError("the object has the wrong size")
        self.memory.use(lambda view: open_object(self.space.seal, sealed, self.key, location.id, view))
