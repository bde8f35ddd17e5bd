"""Runs the process of a manager: opens the index, serves HTTP and gRPC, and shuts down."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlparse

from grpc.aio import Server

from tenantzone_contract.bounded_http import HttpBounds, http_served
from tenantzone_contract.keys.tls import TlsFiles
from tenantzone_manager.catalog import Catalog
from tenantzone_manager.index.backend import IndexBackend, IndexUnavailable, IndexUnusable
from tenantzone_manager.index.sqlite import SqliteBackend
from tenantzone_manager.manager import CacheManager, Settings
from tenantzone_manager.server import grpc, http
from tenantzone_manager.server.access import Anyone, Authenticator
from tenantzone_manager.server.grpc_connections import GrpcBounds, bound_connections
from tenantzone_manager.server.service import Service
from tenantzone_manager.server.tls import ServerTls

STOP_SECONDS: Final = 5.0
"""Maximum number of seconds for which a shutdown waits for in-flight requests."""

_RETRY_SECONDS: Final = 1.0
"""Seconds between two attempts to open the index."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AppSettings:
    """The settings of a manager's process."""

    index: str
    """Path of the index's file, or URL of its Redis server."""
    http: tuple[str, int] = ("127.0.0.1", 9470)
    grpc: tuple[str, int] = ("127.0.0.1", 9471)
    redis_prefix: str = "tenantzone/"
    authenticator: Callable[[Catalog], Authenticator] = lambda _: Anyone()
    """Creates the authenticator; called after the catalog is loaded."""
    tls: TlsFiles | None = None
    """TLS files for both ports. If None, both ports are served without TLS."""
    manager: Settings = field(default_factory=Settings)
    http_bounds: HttpBounds = field(default_factory=lambda: HttpBounds(connections=1024))
    """Limits for client connections to the HTTP port."""
    grpc_bounds: GrpcBounds = field(default_factory=GrpcBounds)


def backend_of(index: str, redis_prefix: str) -> IndexBackend:
    """Returns the store for an index.

    Raises:
        ValueError: the index is neither a path nor the URL of a Redis server.
    """
    scheme = urlparse(index).scheme
    if scheme in ("redis", "rediss", "unix"):
        from tenantzone_manager.index.redis import RedisBackend  # imported late, because a file needs no Redis client

        return RedisBackend(index, redis_prefix)
    if scheme:
        raise ValueError(
            f"--index must be the path of a file or a URL that begins with redis: or rediss:, not {scheme}:"
        )
    return SqliteBackend(Path(index))


async def run(
    settings: AppSettings,
    started: Callable[[int, int], None] = lambda _http, _grpc: None,
    stopping: Callable[[BaseException | None], None] = lambda _error: None,
) -> None:
    """Serve HTTP and gRPC until a signal ends the process.

    Args:
        settings: settings of the process.
        started: called with the HTTP and gRPC port numbers when both ports are open.
        stopping: called before the servers and the manager stop, with the error for which they stop, or None.

    Raises:
        OSError: an address is in use, or the index can't be opened.
        IndexUnusable: the file at the path of the index is not an index.
        TlsError: the TLS files are invalid.
    """
    tls = None if settings.tls is None else ServerTls(settings.tls)
    # Make full garbage collections rare, because each one visits hundreds of thousands of long-lived cached objects.
    gc.set_threshold(100_000, 20, 100)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    manager = await _started(settings, tls, ended)
    if manager is None:
        return
    service = Service(manager)
    authenticator = settings.authenticator(manager.catalog)
    rpc = grpc.server(manager, service, authenticator, settings.grpc_bounds)
    asks_for_certificates = tls is not None and tls.asks_for_certificates
    application = http.application(manager, service, authenticator, asks_for_certificates=asks_for_certificates)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(manager.stop)
        stack.push_async_callback(rpc.stop, STOP_SECONDS)
        try:
            served = http_served(
                application,
                *settings.http,
                stop_seconds=STOP_SECONDS,
                bounds=settings.http_bounds,
                tls=None if tls is None else tls.context(),
            )
            http_port = await stack.enter_async_context(served)
            rpc_port = _open_port(rpc, f"{settings.grpc[0]}:{settings.grpc[1]}", tls)
            await rpc.start()
            bounding = asyncio.create_task(bound_connections(rpc_port, settings.grpc_bounds), name="grpc-connections")
            stack.callback(bounding.cancel)
            protocol = "HTTP" if tls is None else "HTTPS"
            _log.info("%s on %s:%d, gRPC on %s:%d", protocol, settings.http[0], http_port, settings.grpc[0], rpc_port)
            started(http_port, rpc_port)
            await ended.wait()
        finally:
            stopping(sys.exception())


def _open_port(rpc: Server, address: str, tls: ServerTls | None) -> int:
    """Open the gRPC port, and return its number.

    Raises:
        OSError: the address is in use or invalid.
    """
    try:
        return int(rpc.add_insecure_port(address) if tls is None else rpc.add_secure_port(address, tls.credentials()))
    except RuntimeError as error:
        raise OSError(f"can't serve gRPC on {address}: {error}") from error


async def _started(settings: AppSettings, tls: ServerTls | None, ended: asyncio.Event) -> CacheManager | None:
    """Wait until the index answers, and return a started manager. Returns None if a signal arrives before that.

    Until the index answers, the HTTP port serves only health checks.
    """
    problems: list[str] = []
    async with AsyncExitStack() as waiting:
        while not ended.is_set():
            manager = CacheManager(backend_of(settings.index, settings.redis_prefix), settings.manager)
            try:
                await manager.start()
            except IndexUnusable:
                raise
            except IndexUnavailable as error:
                if not problems:
                    problems.append(str(error))
                    _log.warning("the index can't be opened, retrying: %s", error)
                    served = http_served(
                        http.without_index(lambda: problems[-1]),
                        *settings.http,
                        stop_seconds=STOP_SECONDS,
                        bounds=settings.http_bounds,
                        tls=None if tls is None else tls.context(),
                    )
                    await waiting.enter_async_context(served)
                problems[:] = [str(error)]
            else:
                if problems:
                    _log.info("the index is open")
                return manager
            with suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_SECONDS):
                    await ended.wait()
    return None
