"""Decides which public keys are strong enough for signatures that identify tenants."""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

T = TypeVar("T")

MIN_RSA_BITS: Final = 2048
CURVES: Final = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
"""The EC curves that are strong enough: their names in JSON Web Keys, by those in the package cryptography."""


@dataclass(frozen=True, slots=True)
class Accepted(Generic[T]):
    """The accepted keys or certificates of a mounted file."""

    value: T
    problems: tuple[str, ...]
    """For each key or certificate that is too weak and left out: which one it is, and what to change."""


def weakness(key: object) -> str:
    """Returns why a public key is not strong enough, and what to use instead; empty if it is strong enough."""
    if isinstance(key, rsa.RSAPublicKey):
        is_strong = key.key_size >= MIN_RSA_BITS
        return "" if is_strong else f"is an RSA key of {key.key_size} bits; use one of {MIN_RSA_BITS} bits or more"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return "" if key.curve.name in CURVES else curve_weakness(key.curve.name)
    if isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
        return ""
    return f"is of a kind that is not supported; use RSA of {MIN_RSA_BITS} bits or more, EC or Ed25519"


def curve_weakness(name: object) -> str:
    """Returns why an EC key on another curve than those of `CURVES` is refused.

    Args:
        name: of the curve.
    """
    return f"is on the curve {name}; use {', '.join(CURVES.values())}"
