"""Makes TLS contexts from files, such as those of a mounted Secret."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CERTIFICATE: Final = b"CERTIFICATE-----"
_KEY: Final = b"PRIVATE KEY-----"
_ENCRYPTED: Final = b"ENCRYPTED"
"""Text that only encrypted keys contain, either in the first line (PKCS #8) or in a header (older formats)."""
_ANOTHERS: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")
"""The reasons in OpenSSL's errors about a key that belongs to another certificate."""


class TlsError(ValueError):
    """TLS can't use the files. The message names the files, and never contains their content."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The paths of certificates and a key, in PEM.

    Raises:
        TlsError: a certificate is given without a key, or a key without a certificate.
    """

    certificate: Path | None = None
    """File with the certificate to present, followed by intermediate certificates; None to present no certificate."""
    key: Path | None = None
    """File with the certificate's private key, without a passphrase."""
    authorities: Path | None = None
    """File with the CA certificates that are trusted for the peer; None for the system's trusted CAs."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise TlsError("a certificate and its key must be given together")

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths that are not None."""
        return tuple(path for path in (self.certificate, self.key, self.authorities) if path is not None)


DEFAULT_TLS: Final = TlsFiles()
"""A client's default, which trusts the system's CAs and presents no certificate."""


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Returns a client's context, which trusts the given CAs, or else the system's. It presents the given certificate.

    Raises:
        TlsError: the files can't be used.
    """
    if files.authorities is None:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _believe(context, files.authorities)
    _show(context, files)
    return context


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Returns a server's context. If CAs are given, the server requests client certificates signed by these CAs.

    The server refuses certificates of other CAs. It accepts clients without a certificate, because the caller of this
    function decides about each request.

    Raises:
        TlsError: the files can't be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _show(context, files)
    if files.authorities is not None:
        _believe(context, files.authorities)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _believe(context: ssl.SSLContext, authorities: Path) -> None:
    _read(authorities, _CERTIFICATE, "certificate")
    try:
        context.load_verify_locations(authorities)
    except OSError as error:
        raise TlsError(f"{authorities} can't be used: {_reason(error)}") from None


def _show(context: ssl.SSLContext, files: TlsFiles) -> None:
    if files.certificate is None or files.key is None:
        return
    _read(files.certificate, _CERTIFICATE, "certificate")
    if _ENCRYPTED in _read(files.key, _KEY, "private key"):
        # Otherwise OpenSSL would prompt for the passphrase on the terminal.
        raise TlsError(f"{files.key} has a pass phrase, which can't be entered; use a key without a pass phrase")
    try:
        context.load_cert_chain(files.certificate, files.key)
    except OSError as error:
        if _reason(error) in _ANOTHERS:
            raise TlsError(f"{files.key} is not the key of the certificate in {files.certificate}") from None
        raise TlsError(f"{files.certificate} with {files.key} can't be used: {_reason(error)}") from None


def _read(path: Path, mark: bytes, what: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TlsError(f"{path} can't be read: {error.strerror}") from None
    if mark not in content:
        raise TlsError(f"{path} has no {what} in PEM")
    return content


def _reason(error: OSError) -> str:
    """Returns OpenSSL's name for the reason of an error, or the error's message if there is no such name."""
    return (isinstance(error, ssl.SSLError) and error.reason) or str(error)
