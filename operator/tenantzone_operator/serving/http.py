"""Runs a small HTTP server beside the operator's work."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tenantzone_contract.bounded_http import HttpBounds, http_served

_SHUTDOWN_SECONDS = 0.5


@asynccontextmanager
async def served(host: str, port: int, app: web.Application, bounds: HttpBounds | None = None) -> AsyncIterator[int]:
    """Serve a web application for as long as the block runs; gives the port that it listens on.

    Answers should be closed (`force_close`): kopf waits at the end for everything that was begun during its run.

    Args:
        host: where it listens.
        port: where it listens there; 0 chooses a free one.
        app: what is served.
        bounds: of what slow clients may take; the default ones without.
    """
    async with http_served(app, host, port, stop_seconds=_SHUTDOWN_SECONDS, bounds=bounds) as chosen:
        yield chosen
