"""Runs a small HTTP server beside the operator's work."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

_SHUTDOWN_SECONDS = 0.5


@asynccontextmanager
async def served(host: str, port: int, app: web.Application) -> AsyncIterator[None]:
    """Serve a web application for as long as the block runs.

    Answers should be closed (`force_close`): kopf waits at the end for everything that was begun during its run.
    """
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()
