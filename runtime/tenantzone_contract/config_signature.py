"""The signature of a config: the operator signs the files of a pool's ConfigMap, and an engine can demand that.

The key is made of the pool's admin token, which the operator computes and the engine mounts. A signature covers the
bytes of all files of a config and the time at which the pool was created. It is stored with the files, as the binary
entry `SIGNATURE_KEY`: lines of ASCII text, first the version, then the time, then an HMAC-SHA256 in hexadecimal digits
for each key that the operator knows.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from typing import Final

SIGNATURE_KEY: Final = "config.signature"
"""The ConfigMap's key of the signature, and so the name of its file.

Under ``binaryData``: the admission policy lets the operator write no other entry of ``data`` than ``config.json``, and
binary entries that begin with ``config.``, in this release and the one before.
"""

MAX_SIGNATURE_BYTES: Final = 256
"""A longer file is no signature. Three lines fit: for both keys of the operator's Secret, and for a replaced one."""

_VERSION: Final = b"tenantzone-config-signature/1"
_KEY_FOR: Final = b"tenantzone config signature 1"
_TIME: Final = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_HMAC: Final = re.compile(rb"[0-9a-f]{64}")


class SignatureError(ValueError):
    """A config whose signature does not hold; the message says why and what to do."""


def sign_config(files: Mapping[str, bytes], tokens: Sequence[str], pool_created: str) -> bytes:
    """Sign the files of a config.

    Args:
        files: the content of each, by name.
        tokens: of the pool, one to three.
        pool_created: when the pool was created, in RFC 3339 in UTC with whole seconds, as the API server has it.
    """
    created = pool_created.encode()
    digests = [_digest(token.encode(), created, files) for token in tokens]
    return b"\n".join([_VERSION, created, *digests, b""])


def verify_config(files: Mapping[str, bytes], signature: bytes | None, tokens: Sequence[bytes]) -> str:
    """Verify the signature of a config's files.

    Args:
        files: the content of each, by name.
        signature: as it is stored with them; None: there is none.
        tokens: those in force, as the engine has them.

    Returns:
        When the pool was created that the config is of: RFC 3339 in UTC, so it sorts by time.

    Raises:
        SignatureError: there is no token, no signature, or none that was made with a token in force.
    """
    if not tokens:
        raise SignatureError(
            "its signature cannot be verified: the engine has no admin token; mount the pool's Secret "
            "tenantzone-admin-POOL and name its folder by --admin-token, or start the engine without --signed-config"
        )
    if signature is None:
        raise SignatureError(
            f"it has no signature ({SIGNATURE_KEY}): the operator replaces a config that it did not write; if its "
            "release is too old to sign, upgrade it, or start the engine without --signed-config"
        )
    version, *lines = signature.removesuffix(b"\n").split(b"\n")
    if len(signature) > MAX_SIGNATURE_BYTES or version != _VERSION:
        raise SignatureError(
            f"{SIGNATURE_KEY} is of no form that this engine knows: if it stays so, upgrade the engine"
        )
    created, found = lines[0] if lines else b"", lines[1:]
    is_whole = _TIME.fullmatch(created) and found and all(map(_HMAC.fullmatch, found))
    if not is_whole:
        raise SignatureError(f"{SIGNATURE_KEY} is damaged: the operator writes it again")
    ours = [_digest(token, created, files) for token in tokens]
    # All are compared, so that the time does not say which.
    if not sum(hmac.compare_digest(one, other) for one in ours for other in found):
        raise SignatureError(
            "its signature is by none of the admin tokens that the engine has: the operator replaces a config that it "
            "did not write; if it stays so, delete the Secret tenantzone-admin-POOL, which the operator makes again "
            "with its present key"
        )
    return created.decode()


def _digest(token: bytes, created: bytes, files: Mapping[str, bytes]) -> bytes:
    key = hmac.digest(token, _KEY_FOR, hashlib.sha256)
    signed = hmac.new(key, digestmod=hashlib.sha256)
    # Each part with its length before it: no other parts make the same bytes.
    for part in (_VERSION, created, *(each for name in sorted(files) for each in (name.encode(), files[name]))):
        signed.update(len(part).to_bytes(8, "big"))
        signed.update(part)
    return signed.hexdigest().encode()
