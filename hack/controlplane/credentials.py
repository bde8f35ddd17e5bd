"""Certificates and kubeconfigs of a control plane that lives on one machine."""

import base64
import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = datetime.timedelta(days=3650)

ADMIN_GROUP = "system:masters"


class Authority:
    """A certificate authority in a folder: made by the first use, read by later ones."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self.certificate = folder / "ca.crt"
        self._key_file = folder / "ca.key"
        if not self.certificate.exists():
            self._found()
        key = serialization.load_pem_private_key(self._key_file.read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key
        self._subject = x509.load_pem_x509_certificate(self.certificate.read_bytes()).subject
        self._public_key = key.public_key()

    def _found(self) -> None:
        key = new_key(self._key_file)
        name = _name("tenantzone-control-plane", ())
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            _builder(name, name, key.public_key(), key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
        )
        self.certificate.write_bytes(_signed(builder, key))

    def issue_server(self, name: str, also: Sequence[str] = ()) -> tuple[Path, Path]:
        """A certificate for loopback, and ``also`` for other names and addresses, and its key, as files."""
        alternative = x509.SubjectAlternativeName([_host(host) for host in ("localhost", "127.0.0.1", *also)])
        return self._issue(name, (), ExtendedKeyUsageOID.SERVER_AUTH, alternative)

    def issue_client(self, user: str, groups: Sequence[str] = ()) -> tuple[Path, Path]:
        """A certificate that authenticates a user of Kubernetes, and its key, as files."""
        return self._issue(user, groups, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self,
        name: str,
        organizations: Sequence[str],
        usage: x509.ObjectIdentifier,
        alternative: x509.SubjectAlternativeName | None,
    ) -> tuple[Path, Path]:
        stem = file_name(name)
        certificate_file, key_file = self._folder / f"{stem}.crt", self._folder / f"{stem}.key"
        key = new_key(key_file)
        subject = _name(name, organizations)
        builder = _builder(subject, self._subject, key.public_key(), self._public_key).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if alternative is not None:
            builder = builder.add_extension(alternative, critical=False)
        certificate_file.write_bytes(_signed(builder, self._key))
        return certificate_file, key_file


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def new_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Make a private key and write it to a file that only its owner reads."""
    key = ec.generate_private_key(ec.SECP256R1())
    _write_private(
        path,
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        ),
    )
    return key


def write_kubeconfig(path: Path, server: str, authority: Authority, user: str, groups: Sequence[str] = ()) -> None:
    """A kubeconfig with a new client certificate, complete in itself."""
    certificate, key = authority.issue_client(user, groups)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "tenantzone",
                "cluster": {"server": server, "certificate-authority-data": _encoded(authority.certificate)},
            }
        ],
        "users": [
            {
                "name": user,
                "user": {"client-certificate-data": _encoded(certificate), "client-key-data": _encoded(key)},
            }
        ],
        "contexts": [{"name": "tenantzone", "context": {"cluster": "tenantzone", "user": user}}],
        "current-context": "tenantzone",
    }
    _write_private(path, yaml.safe_dump(config, sort_keys=False).encode())


def file_name(user: str) -> str:
    """``system:serviceaccount:a:b`` without what a file's name should not have."""
    return user.replace(":", "_").replace("/", "_")


def _write_private(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, issuer_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    """A certificate with both key identifiers, without which Python 3.13 and newer refuse it."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> bytes:
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
