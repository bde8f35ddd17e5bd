"""Checks certificates and keys before a client uses them, for clearer errors."""

import base64
import ssl
from pathlib import Path

import kopf

_BEGIN = b"-----BEGIN "
_ENCRYPTED = b"ENCRYPTED"
"""Word in each encrypted key: in the first line of a PKCS #8 file, or in the header of an older format."""


def check_tls(connection: kopf.ConnectionInfo) -> None:
    """Check that clients can use the certificates and the key of a connection.

    Raises:
        OSError: a file can't be read.
        ValueError: a certificate or key is invalid; the key does not belong to the certificate, for example because
            only one of the two was replaced; or the key has a pass phrase, which OpenSSL would ask for on a terminal.
    """
    _pem("certificate-authority", connection.ca_path, connection.ca_data)
    _pem("client-certificate", connection.certificate_path, connection.certificate_data)
    key = _pem("client-key", connection.private_key_path, connection.private_key_data)
    if _ENCRYPTED in key:
        raise ValueError("client-key has a pass phrase, which the operator can't enter; use a key without one")
    try:
        connection.as_ssl_context()
    except ssl.SSLError as error:
        raise ValueError(f"certificates or key can't be used: {error.reason or error}") from None


def _pem(field: str, path: object, data: str | bytes | None) -> bytes:
    """Returns the content of a file, or of data in base64; empty if there is neither."""
    if path:
        text = Path(str(path)).read_bytes()
    elif data:
        text = base64.b64decode(data)
    else:
        return b""
    if _BEGIN not in text:
        raise ValueError(f"{field} is not in PEM format")
    return text
