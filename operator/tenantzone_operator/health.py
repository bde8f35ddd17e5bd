"""Health over HTTP: ``/healthz`` fails if a restart would help, ``/readyz`` if this process could not take over."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

_SHUTDOWN_SECONDS = 0.5

Look = Callable[[], tuple[bool, dict[str, Any]]]
"""Whether all is well, and what to show."""


@asynccontextmanager
async def health_served(host: str, port: int, *, live: Look, ready: Look) -> AsyncIterator[None]:
    """Serve both for as long as the block runs: status 200 if all is well, else 503."""
    app = web.Application()
    app.router.add_get("/healthz", _answering(live))
    app.router.add_get("/readyz", _answering(ready))
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()


def _answering(look: Look) -> Callable[[web.Request], Any]:
    async def answer(_: web.Request) -> web.Response:
        is_well, shown = look()
        # Closed after each answer: kopf waits at the end for everything that was begun during its run.
        response = web.json_response(shown, status=200 if is_well else 503)
        response.force_close()
        return response

    return answer
