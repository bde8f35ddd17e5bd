"""Objects of a pool of memory over nodes, by Mooncake's own client, on threads that may wait."""

import os

from tenantzone_contract.mooncake import MISSING, pinned, using
from tenantzone_runtime.shared.places import PoolPlace


class MooncakeStorages:
    """The pool that this engine is told of in ``MOONCAKE_MASTER``: the manager names it, but has no other reached."""

    def write(self, place: PoolPlace, content: bytearray) -> None:
        """Write an object; who reads it after this reads all of it.

        Raises:
            OSError: it could not be written, as where no room is left.
        """
        with using(_master_of(place), len(content)) as store:
            code = store.put(place.name, content, pinned())
        if code:
            raise OSError(f"Mooncake does not take {place.name} (code {code})")

    def read(self, place: PoolPlace, content: bytearray) -> bool:
        """Read an object; False: it has another length than ``content``.

        Raises:
            OSError: it could not be read; ``FileNotFoundError``: it is not there.
        """
        with using(_master_of(place), len(content)) as store:
            handle = store.get_buffer(place.name)
            if handle is None:
                code = store.get_size(place.name)
                missing = FileNotFoundError if code == MISSING else OSError
                # Of what is there, Mooncake does not say why it can't be had: its node may be gone.
                why = f"code {code}" if code < 0 else f"it knows of {code} bytes"
                raise missing(f"Mooncake does not give {place.name} ({why})")
            found = memoryview(handle)
            is_whole = found.nbytes == len(content)
            if is_whole:
                content[:] = found
            # The client's buffer has room again before the next one asks for it.
            del found, handle
            return is_whole


def _master_of(place: PoolPlace) -> str:
    known = os.environ.get("MOONCAKE_MASTER", "")
    if place.master != known:
        told = f"MOONCAKE_MASTER is {known}" if known else "MOONCAKE_MASTER is not set"
        raise OSError(f"the storage's pool has its master at {place.master}, and for this engine {told}")
    return known
