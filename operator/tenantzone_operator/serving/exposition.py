"""Serves the operator's metrics: the counters of this process, and the current state of pools.

Metrics of pools are computed at each scrape, so that the series of a deleted pool end.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from tenantzone_contract.bounded_http import HttpBounds
from tenantzone_operator.metrics import instruments
from tenantzone_operator.metrics.family import Family
from tenantzone_operator.metrics.instruments import REGISTRY
from tenantzone_operator.serving import pool_metrics
from tenantzone_operator.serving.http import served

METRICS_PATH = "/metrics"


def families() -> tuple[Family, ...]:
    """Returns all metric families of the operator."""
    return instruments.FAMILIES + pool_metrics.FAMILIES


def exposition(accept: str = "") -> tuple[bytes, str]:
    """Returns the current metrics as a response body, and the body's content type.

    Args:
        accept: the client's Accept header, which selects the format.
    """
    encode, content_type = choose_encoder(accept)
    return encode(REGISTRY), content_type


@asynccontextmanager
async def metrics_served(
    host: str, port: int, collector: Collector, bounds: HttpBounds | None = None
) -> AsyncIterator[int]:
    """Context manager with the port as its value; serves ``/metrics`` until the block ends.

    Args:
        host: the address to listen on.
        port: the port to listen on.
        collector: computes pool metrics at each scrape.
        bounds: limits for slow clients; the default limits if None.
    """

    async def answer(request: web.Request) -> web.Response:
        body, content_type = exposition(request.headers.get("Accept", ""))
        response = web.Response(body=body, headers={"Content-Type": content_type})
        response.force_close()
        return response

    app = web.Application()
    app.router.add_get(METRICS_PATH, answer)
    REGISTRY.register(collector)
    try:
        async with served(host, port, app, bounds) as chosen:
            yield chosen
    finally:
        REGISTRY.unregister(collector)
