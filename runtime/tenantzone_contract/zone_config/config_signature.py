"""Signs and verifies configs. The operator signs the files of a pool's ConfigMap, and an engine can require signatures.

The key is derived from the pool's admin token, which the operator computes and the engine mounts. A signature covers
the bytes of all files of a config and the time at which the pool was created. The signature is stored with the files in
the binary entry `SIGNATURE_KEY`. The entry is ASCII text. Its lines are the version, the pool's creation time, and an
HMAC-SHA256 in hexadecimal digits for each admin token that the operator knows.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from typing import Final

SIGNATURE_KEY: Final = "config.signature"
"""Key of the signature in the ConfigMap, and name of the file in the mounted folder.

The signature is an entry of ``binaryData``, because the admission policies of this release and the previous one allow
the operator to write any entry of ``binaryData`` that begins with ``config.``, but only ``config.json`` in ``data``.
"""

MAX_SIGNATURE_BYTES: Final = 256
"""Maximum size of a signature's file. Three HMACs fit: for the two keys in the operator's Secret and an older key."""

_VERSION: Final = b"tenantzone-config-signature/1"
_KEY_FOR: Final = b"tenantzone config signature 1"
_TIME: Final = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_HMAC: Final = re.compile(rb"[0-9a-f]{64}")


class SignatureError(ValueError):
    """A config's signature is missing or invalid; the message gives the reason and a remedy."""


def sign_config(files: Mapping[str, bytes], tokens: Sequence[str], pool_created: str) -> bytes:
    """Sign the files of a config.

    Args:
        files: the content of each file, by name.
        tokens: the pool's admin tokens, one to three.
        pool_created: the pool's creationTimestamp, in RFC 3339 in UTC with whole seconds.
    """
    created = pool_created.encode()
    digests = [_digest(token.encode(), created, files) for token in tokens]
    return b"\n".join([_VERSION, created, *digests, b""])


def verify_config(files: Mapping[str, bytes], signature: bytes | None, tokens: Sequence[bytes]) -> str:
    """Verify the signature of a config's files.

    Args:
        files: the content of each file, by name.
        signature: the content of the signature's file; None if the file does not exist.
        tokens: the admin tokens that the engine accepts.

    Returns:
        The creation time of the config's pool, in RFC 3339 in UTC. Such texts sort by time.

    Raises:
        SignatureError: the engine has no token, or the config has no signature by an accepted token.
    """
    if not tokens:
        raise SignatureError(
            "the config's signature cannot be verified, because the engine has no admin token; mount the pool's "
            "Secret tenantzone-admin-POOL and pass its folder to --admin-token, or start the engine without "
            "--signed-config"
        )
    if signature is None:
        raise SignatureError(
            f"the config has no signature ({SIGNATURE_KEY}); the operator will replace a config that it did not "
            "write. If the problem persists, let the operator read its signing key, or start the engine without "
            "--signed-config"
        )
    version, *lines = signature.removesuffix(b"\n").split(b"\n")
    if len(signature) > MAX_SIGNATURE_BYTES or version != _VERSION:
        raise SignatureError(
            f"{SIGNATURE_KEY} has a format that this engine does not know; if the operator does not replace it, "
            "upgrade the engine"
        )
    created, found = lines[0] if lines else b"", lines[1:]
    is_whole = _TIME.fullmatch(created) and found and all(map(_HMAC.fullmatch, found))
    if not is_whole:
        raise SignatureError(f"{SIGNATURE_KEY} is damaged; the operator will write it again")
    ours = [_digest(token, created, files) for token in tokens]
    # Compare all pairs, so that the duration does not reveal which pair matches.
    if not sum(hmac.compare_digest(one, other) for one in ours for other in found):
        raise SignatureError(
            "the config's signature matches none of the engine's admin tokens; the operator will replace a config "
            "that it did not write. If the problem persists, delete the Secret "
            "tenantzone-admin-POOL, which the operator then creates from its current key"
        )
    return created.decode()


def _digest(token: bytes, created: bytes, files: Mapping[str, bytes]) -> bytes:
    key = hmac.digest(token, _KEY_FOR, hashlib.sha256)
    signed = hmac.new(key, digestmod=hashlib.sha256)
    # Prefix each part with its length, so that different parts never result in the same bytes.
    for part in (_VERSION, created, *(each for name in sorted(files) for each in (name.encode(), files[name]))):
        signed.update(len(part).to_bytes(8, "big"))
        signed.update(part)
    return signed.hexdigest().encode()
