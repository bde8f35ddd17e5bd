"""Who reaches whom, by the rules of NetworkPolicies as Kubernetes documents them, read by a small reader of our own.

No network plugin is here that enforces them; what it would be told is checked.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from tests.manifests.rendering import Objects, kustomize, template

Policy = dict[str, Any]


@dataclass(frozen=True)
class Peer:
    """A pod, or with an address alone somebody outside of the cluster."""

    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    """By their names."""
    address: str = "10.1.2.3"


OPERATOR = Peer(
    "tenantzone-system", {"app.kubernetes.io/name": "tenantzone-operator"}, {"probes": 8080, "metrics": 8081}
)
ENGINE = Peer("default", {"app": "vllm"}, {"http": 8000, "admin": 9464})
OTHER_ENGINE = Peer("default", {"app": "vllm"}, {"http": 8000, "admin": 9464}, "10.1.2.4")
TENANT = Peer("tenants", {"app": "bot"})
NEIGHBOUR = Peer("tenantzone-system", {"app": "something"})
PROMETHEUS = Peer("monitoring", {"app": "prometheus"})
API_SERVER = Peer(address="172.18.0.2")
HUB = Peer(address="203.0.113.9")
METADATA = Peer(address="169.254.169.254")


@cache
def policies() -> list[Policy]:
    return [*of(kustomize("base")), *of(kustomize("overlays/cpu-demo"))]


def of(objects: Objects) -> Iterable[Policy]:
    return (body for (kind, _), body in objects.items() if kind == "NetworkPolicy")


def reaches(source: Peer, target: Peer, port: int, protocol: str = "TCP") -> bool:
    """Whether both ends' policies let it through: without one for its direction, an end lets everything through."""
    return _admits(source, "egress", target, target, port, protocol) and _admits(
        target, "ingress", source, target, port, protocol
    )


def _admits(end: Peer, direction: str, other: Peer, target: Peer, port: int, protocol: str) -> bool:
    of_direction = (policy for policy in policies() if direction.title() in policy["spec"]["policyTypes"])
    chosen = [policy for policy in of_direction if _is_of(policy, end)]
    return not chosen or any(
        _lets(rule, "from" if direction == "ingress" else "to", other, target, port, protocol)
        for policy in chosen
        for rule in policy["spec"].get(direction, [])
    )


def _is_of(policy: Policy, end: Peer) -> bool:
    namespace = policy["metadata"].get("namespace", "default")
    return end.namespace == namespace and _has(policy["spec"]["podSelector"], end.labels)


def _lets(rule: Any, key: str, other: Peer, target: Peer, port: int, protocol: str) -> bool:
    through = [each for each in rule.get("ports", [{}]) if each.get("protocol", "TCP") == protocol]
    opened = {target.ports.get(each["port"], each["port"]) if "port" in each else port for each in through}
    return port in opened and (key not in rule or any(_is_peer(peer, other) for peer in rule[key]))


def _is_peer(peer: Any, other: Peer) -> bool:
    if "ipBlock" in peer:
        address, block = ip_address(other.address), peer["ipBlock"]
        return address in ip_network(block["cidr"]) and not any(address in ip_network(not_) for not_ in block["except"])
    in_namespace = _has(peer.get("namespaceSelector", {}), {"kubernetes.io/metadata.name": other.namespace})
    return bool(other.namespace) and in_namespace and _has(peer.get("podSelector", {}), other.labels)


def _has(selector: Any, labels: dict[str, str]) -> bool:
    return selector.get("matchLabels", {}).items() <= labels.items()


@pytest.mark.parametrize(
    ("source", "target", "port", "is_let"),
    [
        pytest.param(TENANT, ENGINE, 8000, True, id="a tenant asks an engine"),
        pytest.param(HUB, ENGINE, 8000, True, id="so does somebody outside, by a load balancer"),
        pytest.param(OPERATOR, ENGINE, 9464, True, id="the operator reads reports"),
        pytest.param(PROMETHEUS, ENGINE, 9464, True, id="Prometheus scrapes engines"),
        pytest.param(TENANT, ENGINE, 9464, False, id="a tenant reads reports"),
        pytest.param(NEIGHBOUR, ENGINE, 9464, False, id="a pod beside the operator reads reports"),
        pytest.param(OTHER_ENGINE, ENGINE, 9464, False, id="an engine reads another's report"),
        pytest.param(TENANT, ENGINE, 5557, False, id="a tenant hears KV events"),
        pytest.param(PROMETHEUS, OPERATOR, 8081, True, id="Prometheus scrapes the operator"),
        pytest.param(TENANT, OPERATOR, 8081, False, id="a tenant scrapes the operator"),
        pytest.param(TENANT, OPERATOR, 8080, False, id="a tenant asks for the operator's health"),
        pytest.param(ENGINE, OPERATOR, 8081, False, id="an engine asks the operator"),
        pytest.param(OPERATOR, API_SERVER, 6443, True, id="the operator works"),
        pytest.param(OPERATOR, HUB, 80, False, id="the operator talks to somebody outside"),
        pytest.param(OPERATOR, ENGINE, 8000, False, id="the operator asks a model"),
        pytest.param(ENGINE, API_SERVER, 6443, False, id="an engine asks the API server"),
        pytest.param(ENGINE, API_SERVER, 443, False, id="and at its other port"),
        pytest.param(ENGINE, METADATA, 80, False, id="an engine asks the cloud who it is"),
        pytest.param(ENGINE, TENANT, 443, False, id="an engine talks to another pod"),
        pytest.param(ENGINE, OTHER_ENGINE, 8000, False, id="an engine asks another one"),
        pytest.param(ENGINE, HUB, 443, True, id="an engine loads a model"),
        pytest.param(ENGINE, HUB, 80, False, id="an engine talks in clear"),
    ],
)
def test_who_reaches_whom(source: Peer, target: Peer, port: int, is_let: bool):
    assert reaches(source, target, port) is is_let


@pytest.mark.parametrize("source", [OPERATOR, ENGINE])
@pytest.mark.parametrize("protocol", ["UDP", "TCP"])
def test_names_can_be_looked_up(source: Peer, protocol: str):
    assert reaches(source, Peer("kube-system", {"k8s-app": "kube-dns"}), 53, protocol)


def test_the_chart_makes_the_same_for_the_engines_that_its_values_list():
    listed = {"namespace": "shop", "pool": "demo", "matchLabels": {"app": "vllm"}}
    made = template({"networkPolicy": {"engines": [listed]}})["NetworkPolicy", "tenantzone-engines-demo"]
    shipped = kustomize("overlays/cpu-demo")["NetworkPolicy", "vllm"]

    assert made["metadata"]["namespace"] == "shop"
    assert made["spec"] == shipped["spec"]


def test_the_engines_policy_follows_the_namespace_of_the_release():
    listed = {"namespace": "shop", "pool": "demo", "matchLabels": {"app": "vllm"}}
    made = template({"networkPolicy": {"engines": [listed]}}, namespace="elsewhere")
    admitted = made["NetworkPolicy", "tenantzone-engines-demo"]["spec"]["ingress"][1]["from"]

    assert admitted[0]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "elsewhere"}
