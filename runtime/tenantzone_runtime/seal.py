"""The sealed binding of a request to a tenant.

The front door knows who asks; the scheduler decides who pays. Between them lie vLLM's own request models, and routes
that may not pass the door at all. So the door seals the binding with a key that only the two share, and the scheduler
believes nothing without a valid seal.

The cache salt that the door sets is under the same seal. It puts the request into the tenant's prefix namespace, and is
made with another key: the seal's is an engine's own, the salt's is the pool's (``tenantzone_contract.salt``).
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
    """What a seal says of a request."""

    tenant: str
    user: str
    """Who of the tenant asks, as :func:`user_digest` says it; empty: that is not told."""


class SealError(ValueError):
    """A seal that is absent, forged, stale, or of another request."""


def new_seal_key() -> bytes:
    """A new random key, for the front door and the scheduler to share."""
    return secrets.token_bytes(32)


def _digest(key: bytes, *parts: str) -> bytes:
    # Each part's length goes in, so that no two lists of parts give the same message.
    # JSON can spell half of a surrogate pair; a client that does must not make this raise.
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    message = b"".join(len(part).to_bytes(4) + part for part in encoded)
    return hmac.digest(key, message, hashlib.sha256)


def user_digest(key: bytes, tenant: str, name: str) -> str:
    """A user of a tenant, in a form that tells nothing of the name and is no other tenant's: hexadecimal digits."""
    return _digest(key, "user", tenant, name).hex()[:_USER_DIGITS]


def seal(key: bytes, tenant: str, cache_salt: str, user: str = "", *, now: float | None = None) -> str:
    """Make the seal that binds a request to a tenant.

    Args:
        key: shared by the front door and the scheduler.
        tenant: who asks.
        cache_salt: what the door has set on this request.
        user: the digest of who of the tenant asks; empty: that is not told.
        now: Unix time in seconds; the present by default.
    """
    issued = f"{time.time() if now is None else now:.0f}"
    nonce = secrets.token_hex(8)
    name = base64.urlsafe_b64encode(tenant.encode()).decode()
    mac = _digest(key, "seal", _VERSION, tenant, issued, nonce, user, cache_salt).hex()
    return ".".join((_VERSION, name, issued, nonce, user, mac))


def without_seals(text: str) -> str:
    """The text with each seal in it blotted out, also one that is cut off in its last part."""
    return _SEAL.sub("(seal)", text)


def unseal(key: bytes, text: str, cache_salt: str, *, now: float | None = None) -> Sealed:
    """Check a seal, and return what it says.

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
    # A clock that was set back makes an age negative; a minute of it is forgiven.
    if not -60.0 <= age <= _LIFETIME_SECONDS:
        raise SealError(f"the seal is {age:.0f} s old")
    return Sealed(tenant, user)
