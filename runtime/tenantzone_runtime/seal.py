"""The sealed binding of a request to a tenant.

The frontend identifies the client, and the scheduler decides which zone's blocks a request uses. Between the two are
vLLM's own request models, and routes that may bypass the frontend. So the frontend seals the binding with a key that
only the frontend and the scheduler have, and the scheduler trusts no request without a valid seal.

The seal also covers the cache salt that the frontend sets. The salt puts the request into the tenant's prefix
namespace. It is made with another key: each engine has its own seal key, but all engines of a pool share the salt key
(``tenantzone_contract.keys.salt``).
"""

import base64
import hashlib
import hmac
import re
import secrets
import time
from typing import NamedTuple

SEAL_ARGUMENT = "tenantzone_seal"
"""The request's extra argument (``vllm_xargs``) that carries the seal."""

_VERSION = "1"
_LIFETIME_SECONDS = 3600.0
_USER_DIGITS = 32
_SEAL = re.compile(r"\b1\.[\w-]*=*\.\d+\.[0-9a-f]{16}\.[0-9a-f]*(\.[0-9a-f]*)?")


class Sealed(NamedTuple):
    """The contents of a request's seal."""

    tenant: str
    user: str
    """The user of the tenant, as a digest from :func:`user_digest`; empty if unknown."""


class SealError(ValueError):
    """The seal is missing, forged or expired, or belongs to another request."""


def new_seal_key() -> bytes:
    """Returns a new random key, for the frontend and the scheduler to share."""
    return secrets.token_bytes(32)


def _digest(key: bytes, *parts: str) -> bytes:
    # Each part's length is included, so that no two lists of parts give the same message.
    # JSON can contain half of a surrogate pair; a client that sends one must not make this raise.
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    message = b"".join(len(part).to_bytes(4) + part for part in encoded)
    return hmac.digest(key, message, hashlib.sha256)


def user_digest(key: bytes, tenant: str, name: str) -> str:
    """Returns a tenant's user as hexadecimal digits that reveal nothing of the name and differ between tenants."""
    return _digest(key, "user", tenant, name).hex()[:_USER_DIGITS]


def seal(key: bytes, tenant: str, cache_salt: str, user: str = "", *, now: float | None = None) -> str:
    """Make the seal that binds a request to a tenant.

    Args:
        key: the key shared by the frontend and the scheduler.
        tenant: the tenant of the client.
        cache_salt: the salt that the frontend has set on this request.
        user: the digest of the tenant's user; empty if unknown.
        now: Unix time in seconds; the current time by default.
    """
    issued = f"{time.time() if now is None else now:.0f}"
    nonce = secrets.token_hex(8)
    name = base64.urlsafe_b64encode(tenant.encode()).decode()
    mac = _digest(key, "seal", _VERSION, tenant, issued, nonce, user, cache_salt).hex()
    return ".".join((_VERSION, name, issued, nonce, user, mac))


def without_seals(text: str) -> str:
    """Returns the text with each seal in it redacted, even one that is truncated in its last part."""
    return _SEAL.sub("(seal)", text)


def unseal(key: bytes, text: str, cache_salt: str, *, now: float | None = None) -> Sealed:
    """Verify a seal, and return its contents.

    Raises:
        SealError: the seal is not valid for a request with this salt.
    """
    try:
        version, name, issued, nonce, user, mac = text.split(".")
        tenant = base64.urlsafe_b64decode(name).decode()
        given = bytes.fromhex(mac)
        age = (time.time() if now is None else now) - float(issued)
    except ValueError:
        raise SealError("the seal is malformed") from None
    if version != _VERSION:
        raise SealError(f"the seal has version {version!r}, expected {_VERSION!r}")
    if not hmac.compare_digest(given, _digest(key, "seal", _VERSION, tenant, issued, nonce, user, cache_salt)):
        raise SealError("the seal does not fit this request")
    # After a clock was set back, the age is negative; up to a minute is accepted.
    if not -60.0 <= age <= _LIFETIME_SECONDS:
        raise SealError(f"the seal is {age:.0f} s old")
    return Sealed(tenant, user)
