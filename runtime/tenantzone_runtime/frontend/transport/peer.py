"""Passes the address and certificate of a connection's peer to the frontend.

Uvicorn does not pass on a client's certificate. It also replaces the address of clients on loopback or in
``FORWARDED_ALLOW_IPS`` by the address in the header ``X-Forwarded-For``. Any client at these addresses can forge it.
"""

import ssl
from collections.abc import Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_EXTENSION = "tenantzone.peer"


def peer_address(scope: Mapping[str, Any]) -> str | None:
    """Returns the address of the connection's peer; None if it is unknown."""
    address: str | None = scope.get("extensions", {}).get(_EXTENSION)
    return address


class PeerProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, extended to pass on the address of the connection's peer and the client's certificate.

    The certificate is passed on as in ASGI's TLS extension. It is only present if the server requests client
    certificates (``--ssl-cert-reqs``). TLS has then verified that the client has the certificate's private key.
    """

    def on_message_begin(self) -> None:
        super().on_message_begin()
        extensions: dict[str, Any] = {_EXTENSION: self.client[0] if self.client else None}
        connection = self.transport.get_extra_info("ssl_object")
        if connection is not None:
            certificate = connection.getpeercert(binary_form=True)
            chain = [ssl.DER_cert_to_PEM_cert(certificate)] if certificate is not None else []
            extensions["tls"] = {"client_cert_chain": chain}
        self.scope["extensions"] = extensions
