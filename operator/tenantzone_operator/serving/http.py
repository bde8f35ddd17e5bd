"""Runs a small HTTP server next to the operator's work."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tenantzone_contract.bounded_http import HttpBounds, http_served

_SHUTDOWN_SECONDS = 0.5


@asynccontextmanager
async def served(host: str, port: int, app: web.Application, bounds: HttpBounds | None = None) -> AsyncIterator[int]:
    """Serve a web application for as long as the block runs; yields the port that it listens on.

    Answers should be closed (`force_close`): at its end, kopf waits for everything that was started during its run.

    Args:
        host: the address to listen on.
        port: the port to listen on; 0 chooses a free one.
        app: the application to serve.
        bounds: limits for slow clients; the default ones if None.
    """
    async with http_served(app, host, port, stop_seconds=_SHUTDOWN_SECONDS, bounds=bounds) as chosen:
        yield chosen
