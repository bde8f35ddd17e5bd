"""Counts the frontend's refusals by reason, as a metric that vLLM's ``/metrics`` route serves."""

from dataclasses import dataclass
from typing import Literal, get_args

from prometheus_client import Counter

Reason = Literal[
    "no_key",
    "several_keys",
    "unknown_key",
    "no_token",
    "refused_token",
    "no_proof",
    "wrong_proof",
    "no_tenant",
    "malformed_tenant",
    "repeated_header",
    "identity_unusable",
    "no_zone",
    "unknown_route",
    "wrong_method",
    "closed_route",
    "malformed_body",
    "compressed_body",
    "duplicate_header",
    "large_body",
    "slow_body",
    "complex_body",
    "complex_grammar",
    "many_prompts",
    "large_media",
    "tenant_bodies",
    "tenant_requests",
    "all_bodies",
    "full_queue",
    "large_head",
    "slow_head",
    "connections",
    "pipelined",
    "upgrade",
    "unsupported_field",
    "model",
    "request_limits",
    "user",
    "request_priority",
    "websocket",
    "engine",
    "parsing_budget",
    "failed",
]
"""The machine-readable reasons of refusals. The set is fixed, because each reason is a label value of a metric."""


@dataclass(frozen=True, slots=True)
class Family:
    """The description of a metric of the frontend."""

    name: str
    """The metric's name as Prometheus scrapes it."""
    type: Literal["counter"]
    labels: tuple[str, ...]
    help: str


_REFUSED = Family(
    "tenantzone_door_refused_requests_total",
    "counter",
    ("reason",),
    "Requests that the frontend did not let through.",
)
_refused = Counter(_REFUSED.name, _REFUSED.help, _REFUSED.labels)
for _reason in get_args(Reason):
    _refused.labels(_reason)


def families() -> tuple[Family, ...]:
    """Returns the descriptions of all metrics of the frontend."""
    return (_REFUSED,)


def count_refusal(reason: Reason) -> None:
    """Add 1 to the counter of refused requests with this reason."""
    _refused.labels(reason).inc()
