"""How an API server reaches pods that it can't dial: through its own proxy (Konnectivity's HTTP CONNECT mode).

The API server's proxy to pods refuses loopback addresses, and the simulated engines have no others. So the pods get
addresses from a range for documentation, and this proxy, which the API server is configured to use, maps them to the
real ones.
"""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

Routes = dict[str, tuple[str, int]]
"""From ``host:port`` of a pod to its real address."""


@contextmanager
def tunnels(path: Path, routes: Routes) -> Iterator[None]:
    """Serves CONNECT on a Unix socket for as long as the block runs."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            target = self.rfile.readline().split()[1].decode()
            while self.rfile.readline().strip():
                continue
            try:
                there = socket.create_connection(routes[target], timeout=10)
            except (KeyError, OSError):
                self.wfile.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
                return
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with there:
                back = threading.Thread(target=_copy, args=(there, self.connection), daemon=True)
                back.start()
                _copy(self.connection, there)
                back.join()

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True

    with Server(str(path), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


def egress_configuration(path: Path) -> str:
    """The file with which the API server is started (``--egress-selector-config-file``)."""
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(path)}}}
    return yaml.safe_dump(
        {
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster", "connection": connection}],
        }
    )


def _copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return
