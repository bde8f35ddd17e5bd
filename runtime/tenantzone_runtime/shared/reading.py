"""One load on a thread: a chunk from the first of its locations that gives it back as it was written."""

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
    """One chunk on its way from a storage."""

    zone: SharedZone
    query: Query
    """Of the request that waits for it."""
    space: Space
    key: bytes
    locations: list[Location]
    """Best first."""
    until: float
    """It may be read for so long, on the monotonic clock: its slot may be another block's after that."""
    memory: Memory
    storage: str = ""
    """That was asked for it last."""
    began: float = math.inf
    """When that one was, on the monotonic clock; infinity: it waits for a thread."""
    is_counted: bool = True
    """Whether it counts as being loaded: not after it is late, whatever its storage still does."""

    def read(self, storages: Storages, buffers: Buffers, heard: dict[str, str]) -> Iterator[str]:
        """Load the chunk; the memory has nothing that was not stored for it.

        Args:
            storages: where it is.
            buffers: each as long as an object.
            heard: gets what became of each storage that was asked, by its name: why it failed; empty: it answered, if
                only that the chunk is not there.

        Yields:
            The name of each storage before it is asked.

        Raises:
            CorruptObjectError: no location has what was written.
            OSError: no location can be read; ``FileNotFoundError``: it is not there any more.
            AbandonedError: nobody waits for it any more.
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
        """See that the chunk is still to be read, and may be."""
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
