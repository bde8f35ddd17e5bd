"""The seal: a keyed digest (HMAC) that binds a request to its tenant.

The frontend identifies the tenant, and the scheduler decides which zone's blocks a request uses. A request reaches the
scheduler through vLLM's code, and some routes may bypass the frontend. So the frontend seals the binding with a key
that only the frontend and the scheduler have, and the scheduler trusts no request without a valid seal.

The seal also covers the cache salt that the frontend sets on the request, which gives each tenant a separate namespace
of prefixes. The salt is made with another key: each engine has its own seal key, but all engines of a pool share the
salt key (``tenantzone_contract.keys.salt``).
"""

import base64
import hashlib
import hmac
import re
import secrets
import time
from typing import NamedTuple

SEAL_ARGUMENT = "tenantzone_seal"
"""Name of the extra argument (in ``vllm_xargs``) that contains a request's seal."""

_VERSION = "1"
_LIFETIME_SECONDS = 3600.0
_USER_DIGITS = 32
_SEAL = re.compile(r"\b1\.[\w-]*=*\.\d+\.[0-9a-f]{16}\.[0-9a-f]*(\.[0-9a-f]*)?")


class Sealed(NamedTuple):
    """The contents of a request's seal."""

    tenant: str
    user: str
    """Digest of the tenant's user, from :func:`user_digest`; empty if unknown."""


class SealError(ValueError):
    """The seal is missing, forged or expired, or belongs to another request."""


def new_seal_key() -> bytes:
    """Returns a new random seal key, which the frontend and the scheduler share."""
    return secrets.token_bytes(32)


def _digest(key: bytes, *parts: str) -> bytes:
    # Include the length of each part, so that two different lists of parts never give the same message.
    # Use surrogatepass, because a client may send half of a surrogate pair in JSON, which must not raise an error here.
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    message = b"".join(len(part).to_bytes(4) + part for part in encoded)
    return hmac.digest(key, message, hashlib.sha256)


def user_digest(key: bytes, tenant: str, name: str) -> str:
    """Returns a keyed digest of a user's name. The digest does not reveal the name, and depends on the tenant."""
    return _digest(key, "user", tenant, name).hex()[:_USER_DIGITS]


def seal(key: bytes, tenant: str, cache_salt: str, user: str = "", *, now: float | None = None) -> str:
    """Returns the seal that binds a request to a tenant.

    Args:
        key: the seal key.
        tenant: the tenant of the request.
        cache_salt: the cache salt that the frontend has set on this request.
        user: the digest of the tenant's user; empty if unknown.
        now: Unix time in seconds; the current time by default.
    """
    issued = f"{time.time() if now is None else now:.0f}"
    nonce = secrets.token_hex(8)
    name = base64.urlsafe_b64encode(tenant.encode()).decode()
    mac = _digest(key, "seal", _VERSION, tenant, issued, nonce, user, cache_salt).hex()
    return ".".join((_VERSION, name, issued, nonce, user, mac))


def without_seals(text: str) -> str:
    """Returns the text with all seals redacted, including a seal whose end is truncated."""
    return _SEAL.sub("(seal)", text)


def unseal(key: bytes, text: str, cache_salt: str, *, now: float | None = None) -> Sealed:
    """Verify a seal, and return its contents.

    Raises:
        SealError: the seal is malformed, forged or too old, or does not match a request with this cache salt.
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
        raise SealError("the seal does not match this request")
    # If the clock was set back, the age is negative. Accept ages down to minus one minute.
    if not -60.0 <= age <= _LIFETIME_SECONDS:
        raise SealError(f"the seal is {age:.0f} s old, so it has expired or a clock is wrong")
    return Sealed(tenant, user)
