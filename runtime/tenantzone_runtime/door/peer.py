"""Who is at the other end of a connection, for the front door, by what nobody but the connection says.

Uvicorn leaves a client's certificate out of what it passes on. And for requests from loopback, or from
``FORWARDED_ALLOW_IPS``, the client's address is what ``X-Forwarded-For`` says: a header, which whoever is there writes.
"""

import ssl
from collections.abc import Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_EXTENSION = "tenantzone.peer"


def peer_address(scope: Mapping[str, Any]) -> str | None:
    """The address that the request's connection comes from; None: it has none, or that is not known."""
    address: str | None = scope.get("extensions", {}).get(_EXTENSION)
    return address


class PeerProtocol(HttpToolsProtocol):
    """Uvicorn's own protocol, which passes on where the connection comes from, and its client's certificate.

    The certificate is passed on as ASGI's TLS extension has it. There is one only where the server asks for it
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
