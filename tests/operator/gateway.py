"""A connection to the API server that a test can cut."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

_BUFFER_BYTES = 65536


class Gateway:
    """Forwards TCP connections to a server on loopback."""

    def __init__(self, server: str) -> None:
        target = urlsplit(server)
        self._target = (target.hostname, target.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"{target.scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._is_cut = False
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Ends all connections, and lets no new one through."""
        with self._lock:
            self._is_cut = True
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def fix(self) -> None:
        with self._lock:
            self._is_cut = False

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            with self._lock:
                if self._is_cut:
                    near.close()
                    continue
                far = socket.create_connection(self._target)
                self._open |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_BUFFER_BYTES):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def gateway_to(server: str) -> Iterator[Gateway]:
    gateway = Gateway(server)
    try:
        yield gateway
    finally:
        gateway.close()
