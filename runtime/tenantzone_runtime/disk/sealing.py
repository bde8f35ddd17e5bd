"""Sealing: what is stored opens only as the chunk that was written, for the zone and instance that wrote it.

AES-GCM (NIST SP 800-38D) with 256 bits, by a key for each zone and each of its purges, which HKDF (RFC 5869) derives of
the pool's salt key. So what was written before a purge opens no more, whoever puts it back. What is under the seal
beside the content says whose it is, what its bytes mean, and which chunk it is.
"""

import hashlib
import secrets
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tenantzone_contract.instance import Instance

NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_HEADER: Final = b"TZD1"
"""Of the form of a file."""


class CorruptObjectError(ValueError):
    """What a file has is not what was written under its name: changed, cut off, swapped or another's."""


class Seal(Protocol):
    """How content becomes a file's, and a file's content again."""

    @property
    def folder(self) -> str:
        """The name of the folder of what is sealed so."""

    def sealed_size(self, content_bytes: int) -> int:
        """The size of a file with so many bytes of content."""

    def seal(self, content: memoryview, key: bytes, nonce: bytes, sealed: bytearray | memoryview) -> None:
        """Put into ``sealed`` what to write for a chunk, by its key and a nonce that no other has."""

    def open(self, sealed: bytearray | memoryview, key: bytes, nonce: bytes, content: memoryview) -> None:
        """Put into ``content`` what is in a file.

        Raises:
            CorruptObjectError: it is not what was sealed for this chunk, with this nonce; the content is zeros then.
        """


class ZoneSeal:
    """The seal of one zone's chunks, until its next purge.

    Args:
        salt_key: the pool's.
        instance: of the zone.
        purge: the id of the zone's last purge; empty: none.
        use: where chunks are stored: what is sealed for one use does not open for another.
    """

    def __init__(self, salt_key: bytes, instance: Instance, purge: str, use: bytes = b"tenantzone disk tier") -> None:
        # It shows neither the zone nor the purge.
        self._folder = _digest(instance.digest, purge)
        info = use + bytes.fromhex(_digest(instance.zone, purge))
        self._cipher = AESGCM(HKDF(SHA256(), 32, salt=None, info=info).derive(salt_key))
        self._about = _HEADER + bytes.fromhex(self._folder)

    @property
    def folder(self) -> str:
        return self._folder

    def sealed_size(self, content_bytes: int) -> int:
        return len(_HEADER) + content_bytes + _TAG_BYTES

    def seal(self, content: memoryview, key: bytes, nonce: bytes, sealed: bytearray | memoryview) -> None:
        sealed[: len(_HEADER)] = _HEADER
        self._cipher.encrypt_into(nonce, content, self._about + key, memoryview(sealed)[len(_HEADER) :])

    def open(self, sealed: bytearray | memoryview, key: bytes, nonce: bytes, content: memoryview) -> None:
        try:
            if bytes(sealed[: len(_HEADER)]) != _HEADER:
                raise InvalidTag
            self._cipher.decrypt_into(nonce, memoryview(sealed)[len(_HEADER) :], self._about + key, content)
        except InvalidTag:
            content[:] = bytes(len(content))
            raise CorruptObjectError("the content is not what was sealed") from None


def new_nonce() -> bytes:
    """A random nonce. Up to 2^32 chunks of one key two are the same with a chance of less than 2^-32."""
    return secrets.token_bytes(NONCE_BYTES)


def _digest(*parts: str) -> str:
    message = b"".join(len(part.encode()).to_bytes(4) + part.encode() for part in parts)
    return hashlib.sha256(message).hexdigest()
