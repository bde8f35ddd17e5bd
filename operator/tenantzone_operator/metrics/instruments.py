"""Counters and histograms of this operator process, leader or standby. Labels contain no object names."""

import re

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics

from tenantzone_operator.metrics.family import Family

_families: list[Family] = []

# Omit the creation timestamps of counters and histograms, because Prometheus detects restarts without them.
disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)


def _counter(name: str, text: str, *labels: str) -> Counter:
    _families.append(Family(f"{name}_total", "counter", labels, text))
    return Counter(name, text, labels, registry=REGISTRY)


def _histogram(name: str, text: str, *labels: str) -> Histogram:
    _families.append(Family(name, "histogram", labels, text))
    return Histogram(name, text, labels, registry=REGISTRY)


RECONCILES = _counter(
    "tenantzone_operator_reconciles",
    "Reconciles of pools by result: something was written (changed), nothing had to be written (unchanged), or the "
    "operator retries (failed).",
    "result",
)
RECONCILE_SECONDS = _histogram(
    "tenantzone_operator_reconcile_seconds", "Duration of one reconcile of a pool, including all writes."
)
ENGINE_POLLS = _counter(
    "tenantzone_operator_engine_polls",
    "Requests to engines for their report by result: a valid report (ok), or an invalid report or no answer in time "
    "(failed).",
    "result",
)
_API_REQUESTS = _counter(
    "tenantzone_operator_api_requests",
    "Requests to the API server except watches. The code is the HTTP status, or error if there was no response.",
    "verb",
    "resource",
    "code",
)
_API_REQUEST_SECONDS = _histogram(
    "tenantzone_operator_api_request_seconds",
    "Time from a request to the API server until the end of the response, except watches.",
    "verb",
)

FAMILIES = tuple(_families)
"""Metric families of this module, without the ``process_…`` metrics, which prometheus_client defines."""

for _result in ("changed", "unchanged", "failed"):
    RECONCILES.labels(_result)
for _result in ("ok", "failed"):
    ENGINE_POLLS.labels(_result)

_RESOURCE = re.compile(
    r"/(?:api|apis/[^/]+)/[^/]+(?:/namespaces/[^/]+)?/(?P<plural>[^/]+)(?P<name>/[^/]+)?(?P<sub>/[^/]+)?"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def verb_and_resource(method: str, path: str) -> tuple[str, str]:
    """Returns a request's Kubernetes verb and resource, for example ``patch`` and ``tenantzones/status``."""
    match = _RESOURCE.fullmatch(path)
    if match is None:
        return method.lower(), "other"
    read = "get" if match["name"] else "list"
    return _VERBS.get(method, read), match["plural"] + (match["sub"] or "")


def count_api_request(method: str, path: str, code: str, seconds: float) -> None:
    """Add a request to the API server to the metrics.

    Args:
        method: the HTTP method.
        path: the path of the resource.
        code: the HTTP status, or ``error`` if there was no response.
        seconds: the duration of the request.
    """
    verb, resource = verb_and_resource(method, path)
    _API_REQUESTS.labels(verb, resource, code).inc()
    _API_REQUEST_SECONDS.labels(verb).observe(seconds)
