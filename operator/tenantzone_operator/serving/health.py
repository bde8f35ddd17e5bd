"""Serves health probes. ``/healthz`` fails if a restart would help, ``/readyz`` if this process can't lead now."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from aiohttp import web

from tenantzone_contract.bounded_http import HttpBounds
from tenantzone_operator.serving.http import served

Look = Callable[[], tuple[bool, dict[str, Any]]]
"""A check that returns whether the process is healthy, and the JSON of the response."""


def health_served(
    host: str, port: int, *, live: Look, ready: Look, bounds: HttpBounds | None = None
) -> AbstractAsyncContextManager[int]:
    """Context manager with the port as its value; serves ``/healthz`` and ``/readyz`` until the block ends.

    The status of a response is 200 if the check succeeds, else 503.
    """
    app = web.Application()
    app.router.add_get("/healthz", _answering(live))
    app.router.add_get("/readyz", _answering(ready))
    return served(host, port, app, bounds)


def _answering(look: Look) -> Callable[[web.Request], Any]:
    async def answer(_: web.Request) -> web.Response:
        is_well, shown = look()
        response = web.json_response(shown, status=200 if is_well else 503)
        response.force_close()
        return response

    return answer
