"""Cache salts: what makes a tenant's prefix namespace, for whoever holds the pool's salt key.

vLLM hashes a request's ``cache_salt`` into its first block, and so into all that follow: two requests share cached
blocks only under the same salt. Engines that hold one key give a tenant one salt, and so equal hashes for equal
prompts. A gateway that holds the key, too, can put the same salt into a request's body before it chooses an engine by
the hashes; the frontend knows the salt for the tenant's own, and leaves it as it is.

vLLM publishes salts in its KV events, so they show neither the tenant nor the key.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from typing import Final

SALT_KEY_FILE: Final = "key"
"""The name of the key in its Secret, and of the file where the Secret is mounted."""

MIN_KEY_BYTES: Final = 32
_MAX_KEY_BYTES: Final = 1024
_KEY_ID_DIGITS: Final = 16
_PART_DIGITS: Final = 32
_SALT: Final = re.compile(r"[0-9a-f]{64}")


class SaltKeyError(ValueError):
    """The content of a file that is no salt key; the message never shows the content."""


def salt_secret_name(pool: str) -> str:
    """The name of the Secret that holds the pool's salt key, in the pool's namespace."""
    return f"tenantzone-salt-{pool}"


def new_salt_key() -> bytes:
    """A new random key."""
    return secrets.token_bytes(MIN_KEY_BYTES)


def parse_salt_key(content: bytes) -> bytes:
    """The key that a file's content spells, in hexadecimal digits or in base64; white space around it is no part of it.

    Raises:
        SaltKeyError: it is neither, or too short.
    """
    text = content.strip()
    key = _decoded(text)
    if key is None:
        raise SaltKeyError("expected a key in hexadecimal digits or in base64")
    if not MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
        raise SaltKeyError(f"a key has {MIN_KEY_BYTES} to {_MAX_KEY_BYTES} bytes, this one {len(key)}")
    return key


def salt_key_id(key: bytes) -> str:
    """The id of a key, 16 hexadecimal digits: it tells two keys apart, and tells nothing of either."""
    return _digest(key, "salt key id").hex()[:_KEY_ID_DIGITS]


def tenant_salt(key: bytes, tenant: str, client_salt: str = "") -> str:
    """The cache salt of a tenant's requests, 64 hexadecimal digits: the tenant's own namespace, and the client's in it.

    A salt of this tenant's is its own: salted once more it stays what it is, so it does not matter whether a gateway
    has put it into the request already. Another tenant's is a client's salt like any other text.

    Args:
        key: the pool's.
        tenant: whose.
        client_salt: what the request says as its ``cache_salt``; empty: nothing.
    """
    if is_salt_of(key, tenant, client_salt):
        return client_salt
    namespace = _digest(key, "salt", tenant, client_salt).hex()[:_PART_DIGITS]
    return namespace + _mark(key, tenant, namespace)


def is_salt_of(key: bytes, tenant: str, salt: str) -> bool:
    """Whether a salt was made for this tenant, under this key."""
    if not _SALT.fullmatch(salt):
        return False
    return hmac.compare_digest(salt[_PART_DIGITS:], _mark(key, tenant, salt[:_PART_DIGITS]))


def _mark(key: bytes, tenant: str, namespace: str) -> str:
    """The second half of a salt, which says whose it is to whoever holds the key."""
    return _digest(key, "salt of", tenant, namespace).hex()[:_PART_DIGITS]


def _digest(key: bytes, *parts: str) -> bytes:
    # Each part's length goes in, so that no two lists of parts give the same message.
    # JSON can spell half of a surrogate pair; a client that does must not make this raise.
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    message = b"".join(len(part).to_bytes(4) + part for part in encoded)
    return hmac.digest(key, message, hashlib.sha256)


def _decoded(text: bytes) -> bytes | None:
    try:
        return binascii.unhexlify(text)
    except binascii.Error:
        pass
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
