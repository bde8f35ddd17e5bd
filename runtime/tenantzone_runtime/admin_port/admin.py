"""The admin port: an HTTP server for the engine's report, health, metrics and block map, and for migrations.

All paths except the health check require a token, because their answers show tenants. All paths are read-only except
one, which starts and stops migrations of a zone's cache.

The server runs in threads of the engine core's process. It reads immutable reports, so it holds no lock for which a
scheduling step would wait.
"""

import errno
import logging
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from tenantzone_contract.cache.blocks import (
    BLOCKS_PATH,
    CELLS_PARAMETER,
    DEFAULT_CELLS,
    MAX_CELLS,
    TIER_PARAMETER,
    BlockMap,
)
from tenantzone_contract.cache.migration import MIGRATION_PATH
from tenantzone_contract.keys.admin_token import ADMIN_REALM, ADMIN_TOKEN_HEADER
from tenantzone_contract.reports.report import HEALTH_PATH, METRICS_PATH, REPORT_PATH, EngineReport, dump_report
from tenantzone_runtime.admin_port.admin_access import AdminAccess
from tenantzone_runtime.admin_port.admin_migration import MigrationPage, Page
from tenantzone_runtime.metrics import EngineFigures
from tenantzone_runtime.metrics.exposition import encode
from tenantzone_runtime.metrics_levels import DEFAULT_LEVEL, Level

_log = logging.getLogger(__name__)

ReadReport = Callable[[], EngineReport]
ReadFigures = Callable[[], EngineFigures]
TakeBlockMap = Callable[[int], BlockMap]
"""Makes the block map. The argument is the maximum number of cells."""
TakeTierMap = Callable[[str, int], BlockMap | None]
"""Makes the map of a tier's chunks; returns None if there is no such tier. The arguments are the tier's name and the
maximum number of cells."""

MAX_CONNECTIONS = 64
"""Maximum number of connections. Each has a separate thread. A further connection closes the oldest connection, because
authorized clients finish quickly."""
CONNECTION_SECONDS = 30.0
"""Maximum duration of a connection in seconds. In addition, each read waits at most 10 s."""

_TEXT = "text/plain; charset=utf-8"


class AdminServer:
    """Serves an engine's newest report, its health, metrics and block map, until it is stopped.

    Args:
        host: address to bind to.
        port: the port; 0 to let the operating system choose a free port.
        access: decides which requests are permitted.
        read_report: returns the newest report. This function and the next four arguments must be thread-safe.
        read_figures: returns the figures for a metrics scrape; None to omit the path.
        take_block_map: makes the block map. Only one map is made at a time. None to omit the path.
        take_tier_map: makes the map of a tier. Only one map is made at a time. None if there are no tiers.
        migration: answers requests about migrations; None if no cache can be migrated.
        metrics_level: the level of detail of metrics for each zone.
        max_age: age in seconds above which a report shows that the engine hangs.
        now: returns Unix time in seconds.

    Raises:
        OSError: the address can't be bound. The message names the address, and the flag to change.
    """

    def __init__(
        self,
        host: str,
        port: int,
        read_report: ReadReport,
        *,
        access: AdminAccess,
        read_figures: ReadFigures | None = None,
        take_block_map: TakeBlockMap | None = None,
        take_tier_map: TakeTierMap | None = None,
        migration: MigrationPage | None = None,
        metrics_level: Level = DEFAULT_LEVEL,
        max_age: float = 10.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._server = _bind(
            host,
            port,
            _Pages(
                access,
                read_report,
                read_figures,
                take_block_map,
                take_tier_map,
                migration,
                metrics_level,
                max_age,
                now,
            ),
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="tenantzone-admin", daemon=True
        )

    @property
    def port(self) -> int:
        """The number of the port on which the server listens, also if the operating system has chosen it."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop accepting requests, and close the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Pages:
    """Makes the admin server's answer to each request: its status, content type and body."""

    def __init__(
        self,
        access: AdminAccess,
        read_report: ReadReport,
        read_figures: ReadFigures | None,
        take_block_map: TakeBlockMap | None,
        take_tier_map: TakeTierMap | None,
        migration: MigrationPage | None,
        metrics_level: Level,
        max_age: float,
        now: Callable[[], float],
    ) -> None:
        self._access = access
        self._read_report = read_report
        self._read_figures = read_figures
        self._take_block_map = take_block_map
        self._take_tier_map = take_tier_map
        self.migration = migration
        self._metrics_level = metrics_level
        self._one_picture_at_a_time = threading.Lock()
        self._max_age = max_age
        self._now = now

    def answer(self, path: str, query: str, headers: Message) -> Page:
        if path == HEALTH_PATH:
            return self._health()
        return self.refusal(headers) or self._answer(path, query, headers.get("Accept", ""))

    def refusal(self, headers: Message) -> Page | None:
        """Returns the answer that refuses a request with these headers; None if the request is permitted."""
        refusal = self._access.refusal(headers.get("Authorization", ""), headers.get(ADMIN_TOKEN_HEADER, ""))
        return (HTTPStatus.UNAUTHORIZED, _TEXT, f"{refusal}\n".encode()) if refusal else None

    def _answer(self, path: str, query: str, accept: str) -> Page:
        match path:
            case _ if path == REPORT_PATH:
                return HTTPStatus.OK, "application/json", dump_report(self._read_report())
            case _ if path == METRICS_PATH and self._read_figures is not None:
                return HTTPStatus.OK, *encode(self._read_figures(), accept, self._metrics_level)
            case _ if path == BLOCKS_PATH and self._take_block_map is not None:
                return self._blocks(self._take_block_map, query)
            case _ if path == MIGRATION_PATH and self.migration is not None:
                return self.migration.progress(query)
        known = ", ".join((REPORT_PATH, HEALTH_PATH, METRICS_PATH, BLOCKS_PATH))
        return HTTPStatus.NOT_FOUND, _TEXT, f"unknown path; use one of {known}\n".encode()

    def _blocks(self, take_block_map: TakeBlockMap, query: str) -> Page:
        asked = parse_qs(query)
        cells, tier = asked.get(CELLS_PARAMETER, [str(DEFAULT_CELLS)])[-1], asked.get(TIER_PARAMETER, [""])[-1]
        if not (cells.isascii() and cells.isdigit() and len(cells) < 9 and 0 < int(cells) <= MAX_CELLS):
            text = f"{CELLS_PARAMETER} must be a number from 1 to {MAX_CELLS}\n"
            return HTTPStatus.BAD_REQUEST, _TEXT, text.encode()
        with self._one_picture_at_a_time:
            block_map = self._take_tier(tier, int(cells)) if tier else take_block_map(int(cells))
        if block_map is None:
            return HTTPStatus.NOT_FOUND, _TEXT, b"the engine has no such tier\n"
        return HTTPStatus.OK, "application/json", block_map.model_dump_json(by_alias=True).encode()

    def _take_tier(self, tier: str, cells: int) -> BlockMap | None:
        return None if self._take_tier_map is None else self._take_tier_map(tier, cells)

    def _health(self) -> Page:
        age = self._now() - self._read_report().published_unix_time
        if age > self._max_age:
            text = f"the engine's last report is {age:.1f} s old, more than {self._max_age:g} s, so the engine hangs\n"
            return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, text.encode()
        return HTTPStatus.OK, _TEXT, b"ok\n"


class _Handler(BaseHTTPRequestHandler):
    # Use HTTP/1.0, which has one request per connection, so that no idle connection stays open.
    protocol_version = "HTTP/1.0"
    timeout = 10.0
    server: "_Server"

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self._send(self.server.pages.answer(path, query, self.headers))

    do_HEAD = do_GET

    def do_POST(self) -> None:
        pages = self.server.pages
        if self.path != MIGRATION_PATH or pages.migration is None:
            self._refuse_method()
            return
        length = self.headers.get("Content-Length")
        refusal = pages.refusal(self.headers) or pages.migration.refuse_length(length)
        self._send(refusal or pages.migration.ordered(self.rfile.read(int(length or 0))))

    def _send(self, page: Page) -> None:
        status, content_type, body = page
        self.send_response(status)
        if status == HTTPStatus.UNAUTHORIZED:
            # The operator recognizes an engine's admin port by this realm.
            self.send_header("WWW-Authenticate", f'Bearer realm="{ADMIN_REALM}"')
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse_method(self) -> None:
        self.send_response(HTTPStatus.METHOD_NOT_ALLOWED)
        self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse_method

    def version_string(self) -> str:
        return "tenantzone"

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug(format, *args)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Queue more pending connections than the default of 5. If the queue is full, a client retries only after a second.
    request_queue_size = 128
    pages: _Pages
    max_connections: int = MAX_CONNECTIONS
    connection_seconds: float = CONNECTION_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._since: dict[socket.socket, float] = {}
        """The start time of each open connection, oldest first. The connection's thread removes its entry."""
        super().__init__(*args, **kwargs)

    def server_bind(self) -> None:
        # Skip HTTPServer's method, because it looks up this machine's name in DNS, which can take seconds.
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._since[request] = time.monotonic()
        for surplus in [*self._since][: max(0, len(self._since) - self.max_connections)]:
            _end(surplus)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """End connections that take too long. The server's thread calls this method ten times a second."""
        latest = time.monotonic() - self.connection_seconds
        for connection, since in self._since.copy().items():
            if since < latest:
                _end(connection)

    def shutdown_request(self, request: Any) -> None:
        self._since.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if isinstance(error, OSError):
            _log.debug("a client of the admin port has disconnected: %s", error)
        else:
            _log.error("the admin port failed to answer a request", exc_info=error)


def _end(connection: socket.socket) -> None:
    """Shut a connection down, so that the thread that waits for data on the connection ends."""
    with suppress(OSError):  # the connection may just have been closed
        connection.shutdown(socket.SHUT_RDWR)


class _IPv6Server(_Server):
    address_family = socket.AF_INET6


def _bind(host: str, port: int, pages: _Pages) -> _Server:
    try:
        server = (_IPv6Server if ":" in host else _Server)((host, port), _Handler)
    except OSError as error:
        advice = "choose another port with --admin-port" if error.errno == errno.EADDRINUSE else "check --admin-host"
        raise OSError(
            error.errno, f"the admin port {host}:{port} can't be opened ({error.strerror}); {advice}"
        ) from None
    server.pages = pages
    return server
