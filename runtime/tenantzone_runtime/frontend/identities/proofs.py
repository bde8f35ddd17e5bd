"""Verifies that a request comes from the gateway, by a shared secret or by the gateway's client certificate."""

import hashlib
import hmac
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

# Use the most common library for certificates, because vLLM depends on it anyway.
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from tenantzone_contract.zone_config.identity import CA_FILE, SECRET_FILE, ClientCertificate, Proof, SecretHeader
from tenantzone_runtime.frontend.identities.asking import ABOUT, only_header, unauthorized, unusable
from tenantzone_runtime.frontend.identities.key_strength import Accepted, weakness
from tenantzone_runtime.frontend.responses.answers import Scope
from tenantzone_runtime.mounted_file import MountedFile

_log = logging.getLogger(__name__)

_MIN_SECRET_LENGTH = 16
_MAX_KNOWN = 1024

_Certificates = tuple[x509.Certificate, ...]


class HopProof(Protocol):
    """Verifies that a request comes from the gateway."""

    @property
    def problem(self) -> str:
        """The reason why no request can be verified; empty if requests can be verified."""

    def refresh(self) -> None:
        """Reload the mounted file if it has changed."""

    def check(self, scope: Scope) -> None:
        """Verify that a request comes from the gateway.

        Raises:
            Refusal: the request has no proof, or a wrong proof.
        """


def make_proof(declared: Proof, folder: Path) -> HopProof:
    """Create the proof that the config selects. ``folder`` is the folder of the mounted secret or certificates."""
    if declared.secret_header is not None:
        return SharedSecret(declared.secret_header, folder)
    assert declared.client_certificate is not None, "a proof has a secret header or a client certificate"
    return GatewayCertificate(declared.client_certificate, folder)


class SharedSecret:
    """Verifies a request by a header whose value only the gateway and the engines know."""

    def __init__(self, declared: SecretHeader, folder: Path) -> None:
        self._header = declared.name.lower().encode()
        self._file = MountedFile(folder, SECRET_FILE, _read_secrets, about=ABOUT)

    @property
    def problem(self) -> str:
        return self._file.problem if self._file.value is None else ""

    def refresh(self) -> None:
        self._file.refresh()

    def check(self, scope: Scope) -> None:
        """Verify the secret in the request's header; see `HopProof`."""
        secrets = self._file.value
        if secrets is None:
            raise unusable()
        shown = only_header(scope["headers"], self._header)
        if shown is None:
            raise unauthorized(
                "no_proof", "The request did not come through this server's gateway; send it to the gateway"
            )
        digest = hashlib.sha256(shown).digest()
        # Compare with all secrets in constant time, so that the duration reveals nothing about the secrets.
        if not sum(hmac.compare_digest(digest, secret) for secret in secrets):
            raise unauthorized(
                "wrong_proof", "The request did not come through this server's gateway; send it to the gateway"
            )


def _read_secrets(content: bytes) -> tuple[bytes, ...]:
    """Returns the SHA-256 digests of the secrets in a file. Each line of the file is one secret.

    Raises:
        ValueError: a line is not a valid secret, or the file contains no secret.
    """
    secrets = []
    for number, line in enumerate(content.replace(b"\r\n", b"\n").split(b"\n"), start=1):
        if not (secret := line.strip(b" \t")):
            continue
        if len(secret) < _MIN_SECRET_LENGTH or not all(33 <= byte <= 126 for byte in secret):
            raise ValueError(
                f"line {number}: a secret must be {_MIN_SECRET_LENGTH} or more printable ASCII characters without "
                "spaces"
            )
        secrets.append(hashlib.sha256(secret).digest())
    if not secrets:
        raise ValueError("the file contains no secret")
    return tuple(secrets)


class GatewayCertificate:
    """Verifies a request by the client certificate of its connection.

    The TLS server has already verified that the client has the certificate's private key.
    """

    def __init__(self, declared: ClientCertificate, folder: Path) -> None:
        self._subjects = frozenset(declared.subjects)
        self._file = MountedFile(folder, CA_FILE, _read_certificates, about=ABOUT)
        self._known: tuple[_Certificates, dict[str, x509.Certificate]] = ((), {})
        """The CAs, and certificates that they have issued, by PEM. Each request checks the validity period again."""

    @property
    def problem(self) -> str:
        return self._file.problem if self._file.value is None else ""

    def refresh(self) -> None:
        if self._file.refresh():
            issuers = self._file.value
            self._known = issuers.value if issuers is not None else (), {}
            for problem in issuers.problems if issuers is not None else ():
                _log.error("%s: %s: %s", ABOUT, CA_FILE, problem)

    def check(self, scope: Scope) -> None:
        """Verify the client certificate of the request's connection; see `HopProof`."""
        issuers, found = self._known
        if not issuers:
            raise unusable()
        chain = scope.get("extensions", {}).get("tls", {}).get("client_cert_chain") or ()
        if not chain:
            raise unauthorized(
                "no_proof", "The connection has no client certificate; send the request to this server's gateway"
            )
        if not self._is_good(chain[0], issuers, found):
            raise unauthorized(
                "wrong_proof",
                "The connection's client certificate is not the gateway's; send the request to this server's gateway",
            )

    def _is_good(self, pem: str, issuers: _Certificates, found: dict[str, x509.Certificate]) -> bool:
        certificate = found.get(pem)
        if certificate is None:
            try:
                certificate = x509.load_pem_x509_certificate(pem.encode())
            except (ValueError, x509.InvalidVersion):
                return False
            if not self._names_gateway(certificate) or not any(_has_issued(issuer, certificate) for issuer in issuers):
                return False
            if problem := _weakness_of(certificate):
                raise unauthorized("wrong_proof", f"The key of the gateway's client certificate {problem}")
            if len(found) >= _MAX_KNOWN:
                found.clear()
            found[pem] = certificate
        return certificate.not_valid_before_utc <= datetime.now(UTC) <= certificate.not_valid_after_utc

    def _names_gateway(self, certificate: x509.Certificate) -> bool:
        names = {certificate.subject.rfc4514_string()}
        try:
            found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
            pass
        else:
            names |= {*found.get_values_for_type(x509.DNSName)}
            names |= {*found.get_values_for_type(x509.UniformResourceIdentifier)}
        return not names.isdisjoint(self._subjects)


def _has_issued(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _read_certificates(content: bytes) -> Accepted[_Certificates]:
    """Parse CA certificates in PEM. Certificates with too weak keys are ignored, and reported in ``problems``.

    Raises:
        ValueError: the content has no certificate, an invalid certificate, or only certificates with too weak keys.
    """
    try:
        certificates = x509.load_pem_x509_certificates(content)
    except (ValueError, x509.InvalidVersion):
        raise ValueError("expected one or more valid certificates in PEM") from None
    strong, problems = [], []
    for number, certificate in enumerate(certificates, start=1):
        if problem := _weakness_of(certificate):
            problems.append(f"certificate {number} ({certificate.subject.rfc4514_string()}) {problem}")
        else:
            strong.append(certificate)
    if not strong:
        raise ValueError("; ".join(problems))
    return Accepted(tuple(strong), tuple(problems))


def _weakness_of(certificate: x509.Certificate) -> str:
    """Returns why a certificate's key is refused, and what to use instead; empty if the key is accepted."""
    try:
        return weakness(certificate.public_key())
    except (ValueError, UnsupportedAlgorithm):
        return weakness(None)
