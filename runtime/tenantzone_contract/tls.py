"""TLS from files that are renewed now and then, as those of a Secret are: what is shown, and who is believed."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CERTIFICATE: Final = b"CERTIFICATE-----"
_KEY: Final = b"PRIVATE KEY-----"
_ENCRYPTED: Final = b"ENCRYPTED"
"""In the first line of a key in PKCS #8, in the header of an older one."""
_ANOTHERS: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")


class TlsError(ValueError):
    """Files that TLS can't be made of; the message names them, and shows nothing of them."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where certificates and a key are, in PEM.

    Raises:
        TlsError: there is a certificate without a key, or a key without a certificate.
    """

    certificate: Path | None = None
    """What is shown, followed by the certificates between it and its authority; None: nothing is."""
    key: Path | None = None
    """Of the certificate, without a pass phrase."""
    authorities: Path | None = None
    """Certificates of those who must have signed what the other side shows; None: those that the system trusts."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise TlsError("a certificate and its key must be given together")

    @property
    def paths(self) -> tuple[Path, ...]:
        """All that there are."""
        return tuple(path for path in (self.certificate, self.key, self.authorities) if path is not None)


DEFAULT_TLS: Final = TlsFiles()
"""For who asks: believe those that the system trusts, and show nothing."""


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """For who asks: it believes the authorities, and shows the certificate if there is one.

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
    """For who answers. With authorities it asks each client for a certificate of theirs, and refuses any other.

    A client that shows none at all is let in: whether it may do what it asks for is not TLS' to say.

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
        # OpenSSL would ask a terminal for it.
        raise TlsError(f"{files.key} has a pass phrase, which nobody can be asked for; give it a key without one")
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
    """In OpenSSL's word, if it has one."""
    return (isinstance(error, ssl.SSLError) and error.reason) or str(error)
