"""Whether certificates and keys can be used, before a client finds out in its own way."""

import base64
import ssl
from pathlib import Path

import kopf

_BEGIN = b"-----BEGIN "
_ENCRYPTED = b"ENCRYPTED"
"""In the first line of a key in PKCS #8, in the header of an older one."""


def check_tls(connection: kopf.ConnectionInfo) -> None:
    """Look at the certificates and the key of a connection as its clients will.

    Raises:
        OSError: a file can't be read.
        ValueError: what is there is no certificate, no key, or not the certificate's own key, as for the moment in
            which only one of both was replaced; or the key has a pass phrase, for which OpenSSL would ask a terminal.
    """
    _pem("certificate-authority", connection.ca_path, connection.ca_data)
    _pem("client-certificate", connection.certificate_path, connection.certificate_data)
    key = _pem("client-key", connection.private_key_path, connection.private_key_data)
    if _ENCRYPTED in key:
        raise ValueError("client-key has a pass phrase, which nobody can be asked for; give it a key without one")
    try:
        connection.as_ssl_context()
    except ssl.SSLError as error:
        raise ValueError(f"certificates or key can't be used: {error.reason or error}") from None


def _pem(field: str, path: object, data: str | bytes | None) -> bytes:
    """What a file has, or the data in its place; empty if there is neither."""
    if path:
        text = Path(str(path)).read_bytes()
    elif data:
        text = data.encode() if isinstance(data, str) else data
        if not text.startswith(_BEGIN):
            text = _decoded(field, text)
    else:
        return b""
    if _BEGIN not in text:
        raise ValueError(f"{path or f'{field}-data'} has no {field} in PEM")
    return text


def _decoded(field: str, data: bytes) -> bytes:
    try:
        return base64.b64decode(b"".join(data.split()), validate=True)
    except ValueError:
        raise ValueError(f"{field}-data is not in base64") from None
