"""TLS on the manager's ports. Each new connection uses the current files, so the files may be replaced at run time."""

import ssl
from dataclasses import dataclass
from typing import Any

import grpc

from tenantzone_contract.keys.renewed import Renewed
from tenantzone_contract.keys.tls import TlsError, TlsFiles, server_context


@dataclass(frozen=True, slots=True)
class _Made:
    """The TLS settings for HTTP and gRPC, made from the same version of the files."""

    context: ssl.SSLContext
    configuration: Any


class ServerTls:
    """TLS of one manager.

    Args:
        files: the manager's certificate and key. If CA certificates are given, too, callers must present a certificate
            that one of the CAs has signed.

    Raises:
        TlsError: the files are invalid.
    """

    def __init__(self, files: TlsFiles) -> None:
        self.asks_for_certificates = files.authorities is not None
        self._files = files
        self._renewed = Renewed(files.paths, self._make, about="TLS of the manager's ports")
        self._renewed.newest()

    def context(self) -> ssl.SSLContext:
        """Returns the context for HTTP.

        The handshake succeeds without a client certificate, because health probes have no certificate. If
        :attr:`asks_for_certificates` is true, the handlers of calls must check for a certificate.
        """
        context = server_context(self._files)
        if self.asks_for_certificates:
            # Disable resumption, because a resumed session presents no certificate, so a certificate that is no longer
            # valid would still be accepted. Require TLS 1.3, because older versions can't disable resumption.
            context.minimum_version, context.num_tickets = ssl.TLSVersion.TLSv1_3, 0

        def choose(connection: ssl.SSLObject, _name: str, _context: ssl.SSLContext) -> None:
            connection.context = self._renewed.newest().context

        # OpenSSL calls this function in each handshake, even if the client sends no server name.
        context.sni_callback = choose
        return context

    def credentials(self) -> Any:
        """Returns the credentials for gRPC. Handshakes fail if a required client certificate is missing."""
        used = self._renewed.newest().configuration

        def renewed() -> Any:
            nonlocal used
            before, used = used, self._renewed.newest().configuration
            return None if used is before else used

        return grpc.dynamic_ssl_server_credentials(used, renewed, self.asks_for_certificates)

    def _make(self) -> _Made:
        context = server_context(self._files)
        certificate, key, authorities = self._files.certificate, self._files.key, self._files.authorities
        assert certificate is not None
        assert key is not None
        try:
            pair = (key.read_bytes(), certificate.read_bytes())
            roots = None if authorities is None else authorities.read_bytes()
        except OSError as error:
            # server_context() could read the same files a moment ago, so another program must be replacing them now.
            raise TlsError(f"a file of the certificate is being replaced: {error}") from None
        return _Made(context, grpc.ssl_server_certificate_configuration([pair], roots))
