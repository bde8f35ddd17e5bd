"""Decides which public keys are strong enough to verify signatures that identify tenants."""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

T = TypeVar("T")

MIN_RSA_BITS: Final = 2048
CURVES: Final = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
"""The EC curves that are strong enough: the name in JSON Web Keys, by the name in the package ``cryptography``."""


@dataclass(frozen=True, slots=True)
class Accepted(Generic[T]):
    """The keys or certificates of a mounted file that are strong enough, and the problems of the others."""

    value: T
    problems: tuple[str, ...]
    """One message for each key or certificate that is ignored because it is too weak."""


def weakness(key: object) -> str:
    """Returns why a public key is refused and what to use instead, as a phrase ("is ..."); empty if it is accepted."""
    if isinstance(key, rsa.RSAPublicKey):
        is_strong = key.key_size >= MIN_RSA_BITS
        return "" if is_strong else f"is an RSA key of {key.key_size} bits; use one of {MIN_RSA_BITS} bits or more"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return "" if key.curve.name in CURVES else curve_weakness(key.curve.name)
    if isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
        return ""
    return f"has an unsupported type; use RSA of {MIN_RSA_BITS} bits or more, EC or Ed25519"


def curve_weakness(name: object) -> str:
    """Returns why a key on an EC curve outside `CURVES` is refused, as a phrase ("is ...").

    Args:
        name: the curve's name.
    """
    return f"is on the unsupported curve {name}; use {', '.join(CURVES.values())}"
