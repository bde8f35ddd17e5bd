"""Records with a checksum of what they say and of where they belong: a disk, or somebody, may have changed them."""

import zlib
from typing import Final

from tenantzone_manager.index.backend import Address

_MARK: Final = b"\xc1"
"""Neither MessagePack nor JSON begins with it: so records of a version without checksums are known."""
_HEAD: Final = 5
"""Bytes: the mark and the checksum."""


class CorruptRecord(Exception):
    """A record is not what was written under its key."""


def with_checksum(address: Address, content: bytes) -> bytes:
    """A record as it is stored."""
    return _MARK + _checksum(address, content) + content


def without_checksum(address: Address, stored: bytes) -> bytes:
    """The content of a stored record; one without a checksum is all content.

    Raises:
        CorruptRecord: the checksum is another one.
    """
    if stored[:1] != _MARK:
        return stored
    content = stored[_HEAD:]
    if stored[1:_HEAD] != _checksum(address, content):
        raise CorruptRecord
    return content


def _checksum(address: Address, content: bytes) -> bytes:
    return zlib.crc32(content, zlib.crc32(address.key, zlib.crc32(address.space.encode()))).to_bytes(4)
