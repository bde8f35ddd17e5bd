"""Checks certificates and keys before a client uses them, to give clearer errors than OpenSSL does."""

import ssl
from pathlib import Path

import kopf

_BEGIN = b"-----BEGIN "
_ENCRYPTED = b"ENCRYPTED"
"""Word that marks an encrypted key: in the BEGIN line in PKCS #8, and in a header in older formats."""


def check_tls(connection: kopf.ConnectionInfo) -> None:
    """Check the certificates and the key of a connection by loading them as its clients will.

    Raises:
        OSError: a file can't be read.
        ValueError: a certificate or key is invalid; the key does not match the certificate, for example because only
            one of them has been replaced so far; or the key has a pass phrase, which OpenSSL would ask for on a
            terminal.
    """
    _pem("certificate-authority", connection.ca_path)
    _pem("client-certificate", connection.certificate_path)
    key = _pem("client-key", connection.private_key_path)
    if _ENCRYPTED in key:
        raise ValueError("client-key has a pass phrase, which can't be entered; use a key without one")
    try:
        connection.as_ssl_context()
    except ssl.SSLError as error:
        raise ValueError(f"certificates or key can't be used: {error.reason or error}") from None


def _pem(field: str, path: object) -> bytes:
    """Returns the content of a PEM file; empty if ``path`` is empty."""
    if not path:
        return b""
    text = Path(str(path)).read_bytes()
    if _BEGIN not in text:
        raise ValueError(f"{field} is not in PEM: {path}")
    return text
