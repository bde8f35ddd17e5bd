"""Identifies the peer of a connection for the frontend, only by properties of the connection itself.

Uvicorn does not pass on a client's certificate. And for requests from loopback, or from ``FORWARDED_ALLOW_IPS``, it
takes the client's address from ``X-Forwarded-For``: a header that any client there can write.
"""

import ssl
from collections.abc import Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_EXTENSION = "tenantzone.peer"


def peer_address(scope: Mapping[str, Any]) -> str | None:
    """Returns the address that the request's connection comes from; None: it has none, or it is unknown."""
    address: str | None = scope.get("extensions", {}).get(_EXTENSION)
    return address


class PeerProtocol(HttpToolsProtocol):
    """Uvicorn's own protocol, which also passes on the address of the connection, and its client's certificate.

    The certificate is passed on as in ASGI's TLS extension. There is one only if the server asks for it
    (``--ssl-cert-reqs``), and then TLS has checked that the client has its key.
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
