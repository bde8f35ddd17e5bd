"""The admin port: the engine's report, its health and its metrics, over HTTP, read-only.

It runs in threads of the engine core's process and only reads a report that is published whole, so it never holds up a
scheduling step with a lock.
"""

import errno
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from tenantzone_contract.report import HEALTH_PATH, METRICS_PATH, REPORT_PATH, EngineReport
from tenantzone_runtime.metrics import ReportCollector

_log = logging.getLogger(__name__)

ReadReport = Callable[[], EngineReport]


class AdminServer:
    """Serves the newest report until it is stopped.

    Args:
        host: address to bind to.
        port: 0 chooses a free one.
        read_report: the newest report; called in other threads, so it must be safe there.
        max_age: seconds after which a report says that the engine hangs.
        now: Unix time in seconds.

    Raises:
        OSError: the address can't be bound; the message says which, and what to change.
    """

    def __init__(
        self,
        host: str,
        port: int,
        read_report: ReadReport,
        *,
        max_age: float = 10.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._server = _bind(host, port, _Pages(read_report, max_age, now))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="tenantzone-admin", daemon=True
        )

    @property
    def port(self) -> int:
        """The port that it really has."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Free the port. Returns when no request is accepted any more."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Pages:
    """What each path answers: status, content type, body."""

    def __init__(self, read_report: ReadReport, max_age: float, now: Callable[[], float]) -> None:
        self._read_report = read_report
        self._max_age = max_age
        self._now = now
        self._registry = CollectorRegistry()
        self._registry.register(ReportCollector(read_report))

    def answer(self, path: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        match path:
            case _ if path == REPORT_PATH:
                return HTTPStatus.OK, "application/json", self._read_report().model_dump_json(by_alias=True).encode()
            case _ if path == METRICS_PATH:
                encode, content_type = choose_encoder(accept)
                return HTTPStatus.OK, content_type, encode(self._registry)
            case _ if path == HEALTH_PATH:
                return self._health()
        known = ", ".join((REPORT_PATH, HEALTH_PATH, METRICS_PATH))
        return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", f"unknown path; there are {known}\n".encode()

    def _health(self) -> tuple[HTTPStatus, str, bytes]:
        age = self._now() - self._read_report().published_unix_time
        if age > self._max_age:
            text = f"the engine's last report is {age:.1f} s old, more than {self._max_age:g} s: it hangs\n"
            return HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", text.encode()
        return HTTPStatus.OK, "text/plain; charset=utf-8", b"ok\n"


class _Handler(BaseHTTPRequestHandler):
    # One request per connection, and a client that sends nothing is dropped: no thread outlives its use.
    protocol_version = "HTTP/1.0"
    timeout = 10.0
    server: "_Server"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        status, content_type, body = self.server.pages.answer(path, self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def _refuse_method(self) -> None:
        self.send_response(HTTPStatus.METHOD_NOT_ALLOWED)
        self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse_method

    def version_string(self) -> str:
        return "tenantzone"

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug(format, *args)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    pages: _Pages

    def server_bind(self) -> None:
        # HTTPServer's own would ask DNS for this machine's name, which can take seconds.
        socketserver.TCPServer.server_bind(self)


class _IPv6Server(_Server):
    address_family = socket.AF_INET6


def _bind(host: str, port: int, pages: _Pages) -> _Server:
    try:
        server = (_IPv6Server if ":" in host else _Server)((host, port), _Handler)
    except OSError as error:
        advice = "choose another with --admin-port" if error.errno == errno.EADDRINUSE else "check --admin-host"
        raise OSError(
            error.errno, f"the admin port {host}:{port} can't be opened ({error.strerror}); {advice}"
        ) from None
    server.pages = pages
    return server
