"""What the identity methods for tenants use: tokens and their keys, certificates, secrets."""

import json
import ssl
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from tenantzone_contract.zone_config.identity import (
    ClientCertificate,
    IdentityConfig,
    Jwt,
    Proof,
    SecretHeader,
    TrustedHeader,
)
from tests.runtime.folders import project

SECRET = "only-the-gateway-knows-this"
ISSUER = "https://issuer.example"
AUDIENCE = "models"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)

BY_HEADER = IdentityConfig(
    trusted_header=TrustedHeader(name="X-Tenant", proof=Proof(secret_header=SecretHeader(name="X-Proof")))
)
BY_CERTIFICATE = IdentityConfig(
    trusted_header=TrustedHeader(
        name="x-tenant", proof=Proof(client_certificate=ClientCertificate(subjects=("gateway.example",)))
    )
)
UNPROVEN = IdentityConfig(trusted_header=TrustedHeader(name="x-tenant"))
BY_TOKEN = IdentityConfig(jwt=Jwt(issuer=ISSUER, audiences=("other", AUDIENCE)))

THROUGH_GATEWAY = {"x-tenant": "acme", "x-proof": SECRET}


def give_files(folder: Path, **files: str | bytes) -> None:
    """Mounts an identity's files; ``ca_crt`` stands for ``ca.crt``."""
    project(folder / "identity", {name.replace("_", "."): content for name, content in files.items()})


def public_key(key: Any = RSA_KEY, **fields: Any) -> dict[str, Any]:
    """A key as a JSON Web Key."""
    return {**json.loads(_algorithm(key).to_jwk(key.public_key())), "kid": "first", **fields}


def private_key(key: Any, **fields: Any) -> dict[str, Any]:
    """A key as a JSON Web Key, with the private half that only the issuer should have."""
    return {**json.loads(_algorithm(key).to_jwk(key)), "kid": "private", **fields}


def _algorithm(key: Any) -> Any:
    if isinstance(key, rsa.RSAPrivateKey):
        return jwt.algorithms.RSAAlgorithm
    return jwt.algorithms.OKPAlgorithm if isinstance(key, ed25519.Ed25519PrivateKey) else jwt.algorithms.ECAlgorithm


def key_set(*keys: dict[str, Any]) -> str:
    return json.dumps({"keys": keys or [public_key()]})


def token(key: Any = RSA_KEY, algorithm: str = "RS256", kid: str | None = "first", **claims: Any) -> str:
    """A valid token for acme with the given changes; a claim that is None is left out."""
    given = {"iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 3600, "tenant": "acme"} | claims
    headers = {"kid": kid} if kid is not None else {}
    return jwt.encode(
        {name: claim for name, claim in given.items() if claim is not None}, key, algorithm=algorithm, headers=headers
    )


def bearer(shown: str) -> dict[str, str]:
    return {"authorization": f"Bearer {shown}"}


class Authority:
    """A certificate authority."""

    def __init__(self, key: Any = None) -> None:
        self._key = key or ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self._certificate = (
            self._begun(self._name, self._key, 1)
            .add_extension(constraints, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, name: str, *, days: float = 1, key: Any = None) -> tuple[str, str]:
        """A certificate for a DNS name that is valid for `days` days from now, and its private key, in PEM."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "client")])
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        certificate = (
            self._begun(subject, key, days).add_extension(names, critical=False).sign(self._key, hashes.SHA256())
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode()

    def _begun(self, subject: x509.Name, key: Any, days: float) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


def of_no_version(pem: str) -> str:
    """A certificate with a version that does not exist."""
    content = ssl.PEM_cert_to_DER_cert(pem)
    third = bytes.fromhex("a003020102")
    assert third in content
    return ssl.DER_cert_to_PEM_cert(content.replace(third, bytes.fromhex("a003020109"), 1))


REFUSED = [
    ("no_token", BY_TOKEN, {}),
    ("refused_token", BY_TOKEN, {"headers": bearer("x")}),
    ("no_proof", BY_HEADER, {"headers": {"x-tenant": "acme"}}),
    ("wrong_proof", BY_HEADER, {"headers": THROUGH_GATEWAY | {"x-proof": "guessed"}}),
    ("no_tenant", BY_HEADER, {"headers": {"x-proof": SECRET}}),
    ("malformed_tenant", BY_HEADER, {"headers": THROUGH_GATEWAY | {"x-tenant": "a b"}}),
    ("repeated_header", BY_HEADER, {"headers": THROUGH_GATEWAY | {"x-tenant": "acme\nburst"}}),
    ("identity_unusable", UNPROVEN, {"headers": THROUGH_GATEWAY}),
]
"""The reason for which each identity refuses a request."""
