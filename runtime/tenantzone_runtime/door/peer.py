"""Who is at the other end of a TLS connection, for the front door: uvicorn leaves it out of what it passes on."""

import ssl

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class PeerProtocol(HttpToolsProtocol):
    """Uvicorn's own protocol, which passes on the client's certificate as ASGI's TLS extension has it.

    There is one only where the server asks for it (``--ssl-cert-reqs``), and then TLS has checked that the client has
    its key.
    """

    def on_message_begin(self) -> None:
        super().on_message_begin()
        connection = self.transport.get_extra_info("ssl_object")
        if connection is not None:
            certificate = connection.getpeercert(binary_form=True)
            chain = [ssl.DER_cert_to_PEM_cert(certificate)] if certificate is not None else []
            self.scope["extensions"] = {"tls": {"client_cert_chain": chain}}
