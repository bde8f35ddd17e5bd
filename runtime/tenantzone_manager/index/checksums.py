"""Checksums of records and their addresses, to detect records changed by a faulty disk or by hand."""

import zlib
from typing import Final

from tenantzone_manager.index.backend import Address

_MARK: Final = b"\xc1"
"""The first byte of a record with a checksum. MessagePack and JSON never begin with it, unlike older records."""
_HEAD: Final = 5
"""The bytes of the mark and the checksum."""


class CorruptRecord(Exception):
    """A record differs from what was written under its key."""


def with_checksum(address: Address, content: bytes) -> bytes:
    """Returns a record as it is stored."""
    return _MARK + _checksum(address, content) + content


def without_checksum(address: Address, stored: bytes) -> bytes:
    """Returns the content of a stored record; an older one without a checksum is all content.

    Raises:
        CorruptRecord: the checksum does not match.
    """
    if stored[:1] != _MARK:
        return stored
    content = stored[_HEAD:]
    if stored[1:_HEAD] != _checksum(address, content):
        raise CorruptRecord
    return content


def _checksum(address: Address, content: bytes) -> bytes:
    return zlib.crc32(content, zlib.crc32(address.key, zlib.crc32(address.space.encode()))).to_bytes(4)
