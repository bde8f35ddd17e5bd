"""Certificates that every supported Python trusts, and the message about an untrusted one."""

import ssl
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hack.controlplane import ClusterError
from hack.controlplane.credentials import Authority
from hack.controlplane.plane import _answers


def strict(cafile: Path, purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH) -> ssl.SSLContext:
    """A context as Python 3.13 and newer make it by default."""
    context = ssl.create_default_context(purpose, cafile=cafile)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Does a whole handshake in memory.

    Raises:
        ssl.SSLError: one side refuses the other.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while sides:
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)


def test_the_strict_checks_of_newer_pythons_pass_for_servers_and_clients(tmp_path: Path):
    authority = Authority(tmp_path)
    client, server = strict(authority.certificate), strict(authority.certificate, ssl.Purpose.CLIENT_AUTH)
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(*authority.issue_server("server"))
    client.load_cert_chain(*authority.issue_client("client"))

    shake_hands(client, server)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The URL of a server with a certificate of an authority in ``tmp_path``."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Authority(tmp_path / "pki").issue_server("server"))
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_certificate_that_is_refused_ends_the_wait_and_is_named(url: str, tmp_path: Path):
    stranger = Authority(tmp_path / "another")
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=strict(stranger.certificate))
    )

    with pytest.raises(ClusterError, match=r"the certificate of https://127\.0\.0\.1:.* is refused: .*certificate"):
        _answers(opener, f"{url}/readyz")
