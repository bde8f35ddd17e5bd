"""Runs a small HTTP server in the operator's event loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tenantzone_contract.bounded_http import HttpBounds, http_served

_SHUTDOWN_SECONDS = 0.5


@asynccontextmanager
async def served(host: str, port: int, app: web.Application, bounds: HttpBounds | None = None) -> AsyncIterator[int]:
    """Context manager with the port as its value; serves a web application until the block ends.

    Responses should close their connection (`force_close`), because kopf stops only after all tasks that were started
    during its run have ended.

    Args:
        host: the address to listen on.
        port: the port to listen on; 0 selects a free port.
        app: the application to serve.
        bounds: limits for slow clients; the default limits if None.
    """
    async with http_served(app, host, port, stop_seconds=_SHUTDOWN_SECONDS, bounds=bounds) as chosen:
        yield chosen
