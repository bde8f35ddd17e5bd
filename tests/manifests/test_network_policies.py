"""Which peers reach which, by the rules of NetworkPolicies as Kubernetes documents them, evaluated by our own small
reader.

`test_network_policies_enforced` has the same cases with a network plugin that enforces them, where the tests are root.
"""

from collections.abc import Iterable
from functools import cache
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from tests.manifests.reach import CASES, PEERS, Case, Peer, Policy
from tests.manifests.rendering import Objects, kustomize, template


@cache
def policies() -> list[Policy]:
    return [*of(kustomize("base")), *of(kustomize("overlays/cpu-demo"))]


def of(objects: Objects) -> Iterable[Policy]:
    return (body for (kind, _), body in objects.items() if kind == "NetworkPolicy")


def reaches(source: Peer, target: Peer, port: int, protocol: str = "TCP") -> bool:
    """Whether both ends' policies allow it: an end without a policy for its direction allows everything."""
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_who_reaches_whom(case: Case):
    assert reaches(PEERS[case.source], PEERS[case.target], case.port) is case.is_let


@pytest.mark.parametrize("source", ["operator", "engine"])
def test_names_can_be_looked_up(source: str):
    assert reaches(PEERS[source], PEERS["names"], 53, "UDP")


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
