"""Which peers reach which by the shipped NetworkPolicies."""

from dataclasses import dataclass, field
from typing import Any

Policy = dict[str, Any]


@dataclass(frozen=True)
class Peer:
    """A pod, or with an address alone a peer outside of the cluster."""

    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    """Ports by their names."""
    address: str = "10.1.2.3"


PEERS = {
    "operator": Peer(
        "tenantzone-system",
        {"app.kubernetes.io/name": "tenantzone-operator"},
        {"probes": 8080, "metrics": 8081},
        "10.1.2.2",
    ),
    "engine": Peer("default", {"app": "vllm"}, {"http": 8000, "admin": 9464}, "10.1.2.3"),
    "other engine": Peer("default", {"app": "vllm"}, {"http": 8000, "admin": 9464}, "10.1.2.4"),
    "tenant": Peer("tenants", {"app": "bot"}, address="10.1.2.5"),
    "neighbour": Peer("tenantzone-system", {"app": "something"}, address="10.1.2.6"),
    "prometheus": Peer("monitoring", {"app": "prometheus"}, address="10.1.2.7"),
    "names": Peer("kube-system", {"k8s-app": "kube-dns"}, address="10.1.2.8"),
    "API server": Peer(address="172.18.0.2"),
    "hub": Peer(address="203.0.113.9"),
    "metadata": Peer(address="169.254.169.254"),
}


@dataclass(frozen=True)
class Case:
    """Whether a peer may connect to a port of another peer, both by their names."""

    what: str
    source: str
    target: str
    port: int
    is_let: bool


CASES = (
    Case("a tenant asks an engine", "tenant", "engine", 8000, True),
    Case("so does a client outside, by a load balancer", "hub", "engine", 8000, True),
    Case("the operator reads reports", "operator", "engine", 9464, True),
    Case("Prometheus scrapes engines", "prometheus", "engine", 9464, True),
    Case("a tenant reads reports", "tenant", "engine", 9464, False),
    Case("a pod next to the operator reads reports", "neighbour", "engine", 9464, False),
    Case("an engine reads another's report", "other engine", "engine", 9464, False),
    Case("a tenant hears KV events", "tenant", "engine", 5557, False),
    Case("Prometheus scrapes the operator", "prometheus", "operator", 8081, True),
    Case("a tenant scrapes the operator", "tenant", "operator", 8081, False),
    Case("a tenant asks for the operator's health", "tenant", "operator", 8080, False),
    Case("an engine asks the operator", "engine", "operator", 8081, False),
    Case("the operator works", "operator", "API server", 6443, True),
    Case("the operator talks to a host outside", "operator", "hub", 80, False),
    Case("the operator asks a model", "operator", "engine", 8000, False),
    Case("an engine asks the API server", "engine", "API server", 6443, False),
    Case("and at its other port", "engine", "API server", 443, False),
    Case("an engine asks the cloud who it is", "engine", "metadata", 80, False),
    Case("an engine talks to another pod", "engine", "tenant", 443, False),
    Case("an engine asks another one", "engine", "other engine", 8000, False),
    Case("an engine loads a model", "engine", "hub", 443, True),
    Case("an engine talks in clear", "engine", "hub", 80, False),
    Case("the operator looks up a name", "operator", "names", 53, True),
    Case("an engine looks up a name", "engine", "names", 53, True),
)
