"""Reads one chunk on a thread, from the first of its locations that returns the chunk intact."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tenantzone_runtime.disk.files.sealing import Buffers, CorruptObjectError
from tenantzone_runtime.disk.transfers import AbandonedError, Memory
from tenantzone_runtime.shared.manager.answers import Location
from tenantzone_runtime.shared.manager.queries import Query
from tenantzone_runtime.shared.sealing import open_object
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
    """The locations of the chunk, the preferred location first."""
    until: float
    """Monotonic time until which the chunk may be read. Afterwards, its place may contain another block."""
    memory: Memory
    storage: str = ""
    """Name of the storage that is read, or was read last."""
    began: float = math.inf
    """Monotonic time at which the current read began; infinity while the load waits for a thread."""
    is_counted: bool = True
    """Whether the chunk counts as being loaded. A late chunk does not count, even while a thread still reads it."""

    def read(self, storages: Storages, buffers: Buffers, heard: dict[str, str]) -> Iterator[str]:
        """Load the chunk into the memory, which never receives another chunk's data.

        Args:
            storages: reads the chunk.
            buffers: buffers of the size of an object.
            heard: a dictionary that receives an error message for each used storage, by the storage's name. The message
                is empty if the storage answered, even if the chunk is missing or corrupt.

        Yields:
            The name of each storage before the storage is read.

        Raises:
            CorruptObjectError: the chunk is corrupt at its last location.
            FileNotFoundError: the chunk is missing at its last location, or its lease has expired.
            OSError: the last location can't be read.
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
        """Check that a request still waits for the chunk, and that the chunk's lease has not expired."""
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
