"""Identifies tenants by JSON Web Tokens: a claim of the request's token names the tenant."""

import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Use the most common library for tokens, because code of our own could easily be insecure. vLLM depends on it anyway.
import jwt

from tenantzone_contract.zone_config.identity import JWKS_FILE, Jwt
from tenantzone_runtime.frontend.identities.asking import ABOUT, check_tenant_name, only_header, unauthorized, unusable
from tenantzone_runtime.frontend.identities.key_strength import CURVES, Accepted, curve_weakness, weakness
from tenantzone_runtime.frontend.responses.answers import Refusal, Scope
from tenantzone_runtime.mounted_file import MountedFile

_log = logging.getLogger(__name__)

_MAX_TOKEN_BYTES = 16 * 2**10
_MAX_KEYS = 256
_MAX_FOUND = 10_000

_TYPES: Mapping[str, str] = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""Key type (``kty``) by the first two letters of the algorithm."""
_CURVES: Mapping[str, str] = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed25519"}
_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "priv"})
"""Members that only private JSON Web Keys have, according to RFC 7518, RFC 8037 and the standard for ML-DSA keys."""

Keys = Mapping[tuple[str | None, str], jwt.PyJWK]
"""Public keys by id (``kid``) and algorithm. A key has one entry for each algorithm with which it may be used."""


_Found = dict[bytes, tuple[str, float]]
"""Cached results, oldest first: the tenant and the Unix time of expiry, by the token's SHA-256 digest."""


class TokenIdentity:
    """Identifies tenants by signed tokens of one issuer.

    Verifying a signature is expensive. So the result is cached until the token expires or the keys change.

    Args:
        declared: the pool's ``identity.jwt``.
        folder: the folder in which the public keys are mounted.
    """

    secret_headers: frozenset[bytes] = frozenset()

    def __init__(self, declared: Jwt, folder: Path) -> None:
        self._declared = declared
        self._file = MountedFile(
            folder, JWKS_FILE, lambda content: read_keys(content, declared.algorithms), about=ABOUT
        )
        self._known: tuple[Accepted[Keys] | None, _Found] = (None, {})
        """The keys, and the results of verifying tokens with these keys. They are one tuple, so that a reader never
        combines new keys with old results while another thread replaces both."""

    @property
    def problem(self) -> str:
        return self._file.problem if self._file.value is None else ""

    def refresh(self) -> None:
        if self._file.refresh():
            self._known = self._file.value, {}
            for problem in self._file.value.problems if self._file.value is not None else ():
                _log.error("%s: %s: %s", ABOUT, JWKS_FILE, problem)

    def tenant_of(self, scope: Scope) -> str:
        """Returns the tenant named by the request's token; see `Identity`."""
        accepted, found = self._known
        if accepted is None:
            raise unusable()
        token = _shown_token(scope)
        digest = hashlib.sha256(token).digest()
        tenant, until = found.get(digest, ("", 0.0))
        if time.time() < until:
            return tenant
        found.pop(digest, None)
        claims = self._claims(token, accepted.value)
        tenant = self._tenant_in(claims)
        if len(found) >= _MAX_FOUND:
            del found[next(iter(found))]
        found[digest] = tenant, claims["exp"] + self._declared.leeway_seconds
        return tenant

    def _claims(self, token: bytes, keys: Keys) -> Mapping[str, Any]:
        try:
            key = _key_for(jwt.get_unverified_header(token), keys)
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(self._declared.algorithms),
                issuer=self._declared.issuer,
                audience=list(self._declared.audiences),
                leeway=self._declared.leeway_seconds,
                options={"require": ["exp", "iss", "aud"]},
            )
            return {**claims, "exp": float(claims["exp"])}
        except jwt.ExpiredSignatureError:
            raise _refused("has expired; get a new one") from None
        except (jwt.InvalidAudienceError, jwt.InvalidIssuerError):
            raise _refused("has another issuer or audience; get one for this server") from None
        except jwt.MissingRequiredClaimError as error:
            raise _refused(f"lacks the claim {error.claim}; get one with this claim") from None
        # Besides PyJWT's errors, catch the errors for invalid text, too large numbers and too deep nesting.
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            raise _refused("is invalid; get a new one") from None

    def _tenant_in(self, claims: Mapping[str, Any]) -> str:
        value: Any = claims
        for name in self._declared.tenant_claim:
            value = value.get(name) if isinstance(value, dict) else None
        if not isinstance(value, str):
            claim = " > ".join(self._declared.tenant_claim)
            raise unauthorized("no_tenant", f"The token names no tenant in its claim {claim}")
        return check_tenant_name(value)


def read_keys(content: bytes, algorithms: Sequence[str]) -> Accepted[Keys]:
    """Parse a JSON Web Key Set. Returns its keys for the given algorithms, and ignores keys for other algorithms.

    Keys that are too weak are also ignored, and reported in ``problems``.

    Raises:
        ValueError: the content is not a JSON Web Key Set, contains a private key, contains two keys with the same id
            and algorithm, or contains no usable key.
    """
    try:
        found = json.loads(content)["keys"]
        entries = [dict(entry) for entry in found]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError('expected a JSON Web Key Set: {"keys": [...]}') from None
    if len(entries) > _MAX_KEYS:
        raise ValueError(f"the file has {len(entries)} keys, more than the maximum of {_MAX_KEYS}")
    keys: dict[tuple[str | None, str], jwt.PyJWK] = {}
    problems: dict[str, None] = {}
    for number, entry in enumerate(entries):
        if not _PRIVATE.isdisjoint(entry):
            # Refuse the file even if the private key would be ignored. Each reader of the file could forge tokens.
            raise ValueError(
                f"keys[{number}] is a private key; put the public half of a new key here, and let the issuer stop "
                "signing with this key"
            )
        name = f"keys[{number}] (kid {entry.get('kid')!r})"
        if entry.get("kty") == "EC" and entry.get("use") in (None, "sig") and entry.get("crv") not in CURVES.values():
            problems[f"{name} {curve_weakness(entry.get('crv'))}"] = None
            continue
        for algorithm in algorithms:
            if not _is_for(entry, algorithm):
                continue
            try:
                key = jwt.PyJWK(entry, algorithm)
            except (jwt.PyJWTError, ValueError, TypeError, KeyError):
                raise ValueError(f"keys[{number}] is not a valid JSON Web Key") from None
            if problem := weakness(key.key):
                problems[f"{name} {problem}"] = None
                continue
            if (entry.get("kid"), algorithm) in keys:
                raise ValueError(f"keys[{number}] has the kid of another key; give each key its own kid")
            keys[entry.get("kid"), algorithm] = key
    if not keys:
        raise ValueError("; ".join((f"the file has no usable key for {', '.join(algorithms)}", *problems)))
    return Accepted(keys, tuple(problems))


def _is_for(entry: Mapping[str, Any], algorithm: str) -> bool:
    """Returns whether a JSON Web Key may be used to verify signatures of an algorithm."""
    operations = entry.get("key_ops") or ["verify"]
    return (
        entry.get("kty") == _TYPES[algorithm[:2]]
        and entry.get("crv") in (None, _CURVES.get(algorithm))
        and entry.get("alg") in (None, algorithm)
        and entry.get("use") in (None, "sig")
        and isinstance(entry.get("kid"), str | None)
        and isinstance(operations, list)
        and "verify" in operations
    )


def _key_for(header: Mapping[str, Any], keys: Keys) -> jwt.PyJWK:
    """Returns the key that a token's header names by its key id and algorithm.

    If the header has no key id, returns the key for the token's algorithm if there is exactly one.

    Raises:
        jwt.InvalidKeyError: no key matches, or the header has no key id and several keys match.
    """
    kid, algorithm = header.get("kid"), header.get("alg")
    if kid is None:
        fitting = [key for (_, known), key in keys.items() if known == algorithm]
        if len(fitting) == 1:
            return fitting[0]
    elif isinstance(algorithm, str) and (key := keys.get((kid, algorithm))) is not None:
        return key
    raise jwt.InvalidKeyError


def _shown_token(scope: Scope) -> bytes:
    authorization = only_header(scope["headers"], b"authorization") or b""
    scheme, _, token = authorization.partition(b" ")
    if scheme.lower() != b"bearer" or not token.strip():
        raise unauthorized("no_token", "The request has no token; send one in the header 'Authorization: Bearer TOKEN'")
    if len(token) > _MAX_TOKEN_BYTES:
        raise _refused(f"is longer than {_MAX_TOKEN_BYTES} bytes")
    return token.strip()


def _refused(why: str) -> Refusal:
    return unauthorized("refused_token", f"The token {why}")
