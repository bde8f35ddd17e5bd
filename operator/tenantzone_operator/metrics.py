"""What the operator counts, and what it tells Prometheus of it.

Counters and histograms are of this process, whether it leads or not. What is told of pools is made of the leader's
knowledge at each scrape (`pool_metrics`), so nothing of a removed pool stays. No label holds the name of an object, but
for a pool's own and that of an engine's pod.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from tenantzone_operator.serving import served

METRICS_PATH = "/metrics"


@dataclass(frozen=True, slots=True)
class Family:
    """What can be said of a metric without any sample of it."""

    name: str
    """As a scrape shows it."""
    type: Literal["counter", "gauge", "histogram", "info"]
    labels: tuple[str, ...]
    help: str


_families: list[Family] = []


def families() -> tuple[Family, ...]:
    """All metrics of the operator's own. (Those of its process, ``process_…``, are prometheus_client's.)"""
    # Imported for what it declares.
    from tenantzone_operator import pool_metrics  # noqa: F401

    return tuple(_families)


def declare_gauge(name: str, text: str, *labels: str) -> Family:
    """A gauge that a collector makes at each scrape."""
    return _declared(Family(name, "gauge", labels, text))


def declare_info(name: str, text: str, *labels: str) -> Family:
    return _declared(Family(f"{name}_info", "info", labels, text))


def _declared(family: Family) -> Family:
    _families.append(family)
    return family


# A time stamp beside each counter and histogram, as a gauge: Prometheus sees a restart without it.
disable_created_metrics()  # type: ignore[no-untyped-call]
_registry = CollectorRegistry()
ProcessCollector(registry=_registry)


def _counter(name: str, text: str, *labels: str) -> Counter:
    _declared(Family(f"{name}_total", "counter", labels, text))
    return Counter(name, text, labels, registry=_registry)


def _histogram(name: str, text: str, *labels: str) -> Histogram:
    _declared(Family(name, "histogram", labels, text))
    return Histogram(name, text, labels, registry=_registry)


RECONCILES = _counter(
    "tenantzone_operator_reconciles",
    "Times that a pool was looked at: something was written (changed), nothing had to be (unchanged), or it will be "
    "tried again (failed).",
    "result",
)
RECONCILE_SECONDS = _histogram(
    "tenantzone_operator_reconcile_seconds", "Time that one look at a pool took, with all that was written."
)
ENGINE_POLLS = _counter(
    "tenantzone_operator_engine_polls",
    "Times that an engine was asked for its report: it answered with one (ok), or not in time or not with one that "
    "can be read (failed).",
    "result",
)
_API_REQUESTS = _counter(
    "tenantzone_operator_api_requests",
    "Requests to the API server, watches left out; the code is its answer's HTTP status, or error if there was none.",
    "verb",
    "resource",
    "code",
)
_API_REQUEST_SECONDS = _histogram(
    "tenantzone_operator_api_request_seconds",
    "Time from a request to the API server to the end of its answer, watches left out.",
    "verb",
)

for _result in ("changed", "unchanged", "failed"):
    RECONCILES.labels(_result)
for _result in ("ok", "failed"):
    ENGINE_POLLS.labels(_result)

_RESOURCE = re.compile(
    r"/(?:api|apis/[^/]+)/[^/]+(?:/namespaces/[^/]+)?/(?P<plural>[^/]+)(?P<name>/[^/]+)?(?P<sub>/[^/]+)?"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def verb_and_resource(method: str, path: str) -> tuple[str, str]:
    """What a request does and to what, in Kubernetes' words: ``patch``, ``tenantzones/status``."""
    match = _RESOURCE.fullmatch(path)
    if match is None:
        return method.lower(), "other"
    read = "get" if match["name"] else "list"
    return _VERBS.get(method, read), match["plural"] + (match["sub"] or "")


def count_api_request(method: str, path: str, code: str, seconds: float) -> None:
    """Note a request to the API server.

    Args:
        method: HTTP's.
        path: of the resource.
        code: the answer's HTTP status, or ``error`` if there was none.
        seconds: that it took.
    """
    verb, resource = verb_and_resource(method, path)
    _API_REQUESTS.labels(verb, resource, code).inc()
    _API_REQUEST_SECONDS.labels(verb).observe(seconds)


def exposition(accept: str = "") -> tuple[bytes, str]:
    """All metrics as they are now, and the content type.

    Args:
        accept: the HTTP header by which a client chooses the format.
    """
    encode, content_type = choose_encoder(accept)
    return encode(_registry), content_type


@asynccontextmanager
async def metrics_served(host: str, port: int, collector: Collector) -> AsyncIterator[None]:
    """Serve ``/metrics`` for as long as the block runs.

    Args:
        host: where it listens.
        port: the same.
        collector: for what is made at each scrape.
    """

    async def answer(request: web.Request) -> web.Response:
        body, content_type = exposition(request.headers.get("Accept", ""))
        response = web.Response(body=body, headers={"Content-Type": content_type})
        response.force_close()
        return response

    app = web.Application()
    app.router.add_get(METRICS_PATH, answer)
    _registry.register(collector)
    try:
        async with served(host, port, app):
            yield
    finally:
        _registry.unregister(collector)
