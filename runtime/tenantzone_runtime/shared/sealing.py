"""Sealing for storages that others can write to: the disk tier's seal, by a key of its own, for one location only.

An object is a nonce, and what the seal makes of a chunk. The id of the location that it was written for is under the
seal, so that it opens in no other but one that the manager has copied it to.
"""

import threading

from tenantzone_contract.cache_names import written_as
from tenantzone_contract.instance import Instance
from tenantzone_runtime.disk.sealing import NONCE_BYTES, Seal, ZoneSeal, new_nonce


def zone_seal(salt_key: bytes, instance: Instance, purge: str) -> ZoneSeal:
    """The seal of a zone's chunks in shared storages, until its next purge; see :class:`ZoneSeal`."""
    return ZoneSeal(salt_key, instance, purge, b"tenantzone shared tier")


def object_size(seal: Seal, content_bytes: int) -> int:
    """Bytes of an object with so many bytes of content."""
    return NONCE_BYTES + seal.sealed_size(content_bytes)


def seal_object(seal: Seal, content: memoryview, key: bytes, location: str, sealed: bytearray) -> None:
    """Put into ``sealed`` what to write for a chunk at a location, by its id."""
    nonce = new_nonce()
    sealed[:NONCE_BYTES] = nonce
    seal.seal(content, _about(key, location), nonce, memoryview(sealed)[NONCE_BYTES:])


def open_object(seal: Seal, sealed: bytearray, key: bytes, location: str, content: memoryview) -> None:
    """Put into ``content`` what is in an object.

    Raises:
        CorruptObjectError: it is not what was sealed for this chunk at this location; the content is zeros then.
    """
    seal.open(memoryview(sealed)[NONCE_BYTES:], _about(key, location), bytes(sealed[:NONCE_BYTES]), content)


class Buffers:
    """Memory for one object for each thread: a new one for each object would cost more than to fill it.

    Args:
        size: of an object, in bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._of_thread = threading.local()

    def of_this_thread(self) -> bytearray:
        """The same at each call of a thread."""
        buffer = getattr(self._of_thread, "buffer", None)
        if not isinstance(buffer, bytearray):
            buffer = self._of_thread.buffer = bytearray(self.size)
        return buffer


def _about(key: bytes, location: str) -> bytes:
    return key + b"/" + written_as(location).encode()
