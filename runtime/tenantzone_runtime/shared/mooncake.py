"""Objects of a pool of memory over nodes, by Mooncake's own client, on threads that may wait."""

import os
from typing import Any

from tenantzone_contract.mooncake import MISSING, connect, pinned
from tenantzone_runtime.shared.places import PoolPlace


class MooncakeStorages:
    """The pool that this engine is told of in ``MOONCAKE_MASTER``: the manager names it, but has no other reached."""

    def write(self, place: PoolPlace, content: bytearray) -> None:
        """Write an object; who reads it after this reads all of it.

        Raises:
            OSError: it could not be written, as where no room is left.
        """
        code = _store_of(place).put(place.name, content, pinned())
        if code:
            raise OSError(f"Mooncake does not take {place.name} (code {code})")

    def read(self, place: PoolPlace, content: bytearray) -> bool:
        """Read an object; False: it has another length than ``content``.

        Raises:
            OSError: it could not be read; ``FileNotFoundError``: it is not there.
        """
        store = _store_of(place)
        handle = store.get_buffer(place.name)
        if handle is None:
            code = store.get_size(place.name)
            missing = FileNotFoundError if code == MISSING else OSError
            raise missing(f"Mooncake does not give {place.name} (code {code})")
        found = memoryview(handle)
        if found.nbytes != len(content):
            return False
        content[:] = found
        return True


def _store_of(place: PoolPlace) -> Any:
    known = os.environ.get("MOONCAKE_MASTER", "")
    if place.master != known:
        told = f"MOONCAKE_MASTER is {known}" if known else "MOONCAKE_MASTER is not set"
        raise OSError(f"the storage's pool has its master at {place.master}, and for this engine {told}")
    return connect(known)
