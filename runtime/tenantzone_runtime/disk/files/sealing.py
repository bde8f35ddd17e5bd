"""Sealing: encrypts stored chunks, so that data opens only as the same chunk, for the zone and instance that wrote it.

Chunks are sealed with AES-256-GCM (NIST SP 800-38D). HKDF (RFC 5869) derives a key for each zone and each of its purges
from the pool's salt key. So data from before a purge never opens again, even if its files are restored. In addition to
the content, the seal authenticates the owner, the format of the bytes, and the identity of the chunk.
"""

import hashlib
import secrets
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tenantzone_contract.zone_config.instance import Instance

NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_HEADER: Final = b"TZD1"
"""The version of the file format."""


class CorruptObjectError(ValueError):
    """A file's content is not what was written: it was changed, truncated or swapped, or belongs to another zone."""


class Seal(Protocol):
    """Converts content to a file's content and back."""

    @property
    def folder(self) -> str:
        """Name of the folder for files with this seal."""

    def sealed_size(self, content_bytes: int) -> int:
        """Returns the size of a file with ``content_bytes`` bytes of content."""

    def seal(self, content: memoryview, key: bytes, nonce: bytes, sealed: bytearray | memoryview) -> None:
        """Seal a chunk into ``sealed``, with its key and a unique nonce."""

    def open(self, sealed: bytearray | memoryview, key: bytes, nonce: bytes, content: memoryview) -> None:
        """Open a file's content into ``content``.

        Raises:
            CorruptObjectError: the file was not sealed for this chunk with this nonce. ``content`` is set to zeros.
        """


class ZoneSeal:
    """The seal of one zone's chunks, until its next purge.

    Args:
        salt_key: the pool's salt key.
        instance: the zone's instance.
        purge: the id of the zone's last purge; empty for none.
        use: the kind of storage. Data sealed for one kind does not open for another.
    """

    def __init__(self, salt_key: bytes, instance: Instance, purge: str, use: bytes = b"tenantzone disk tier") -> None:
        # The name reveals neither the zone nor the purge.
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
    """Returns a random nonce. Among up to 2^32 chunks of one key, two are equal with a probability below 2^-32."""
    return secrets.token_bytes(NONCE_BYTES)


def _digest(*parts: str) -> str:
    message = b"".join(len(part.encode()).to_bytes(4) + part.encode() for part in parts)
    return hashlib.sha256(message).hexdigest()
