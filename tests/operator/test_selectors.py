"""Selectors mean the same here and to the API server, also those that it would refuse."""

from collections.abc import Iterator
from typing import Any

import pytest

from hack.controlplane import Cluster
from tenantzone_operator.kube.selectors import matches, query
from tests.operator.fleet import pod_manifest
from tests.operator.kube import Kube

NAMESPACE = "test-selectors"
PODS = {
    "vllm": {"app": "vllm"},
    "other": {"app": "other", "tier": "x"},
    "empty": {"app": "", "in": "notin"},
    "prefixed": {"example.com/app": "vllm", "tier": "y"},
    "bare": {},
}


@pytest.fixture(scope="module")
def pods_path(control_plane: Cluster, kube: Kube) -> Iterator[str]:
    """The path of a namespace with a pod for each label set."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    control_plane.create_namespace(NAMESPACE)
    for name, labels in PODS.items():
        kube.call("POST", path, pod_manifest(name, labels))
    yield path
    control_plane.delete_namespace(NAMESPACE)


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def by(*expressions: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {"matchLabels": labels, "matchExpressions": list(expressions)}


@pytest.mark.controlplane
@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        pytest.param({}, set(), id="nothing"),
        pytest.param(by(app="vllm"), {"vllm"}, id="a label"),
        pytest.param(by(app=""), {"empty"}, id="an empty value"),
        pytest.param(by(expression("app", "In", "", "vllm")), {"vllm", "empty"}, id="one of two values"),
        pytest.param(by(expression("app", "NotIn", "vllm"), tier="y"), {"prefixed"}, id="labels and expressions"),
        pytest.param(by(expression("app", "NotIn", "")), PODS.keys() - {"empty"}, id="no empty value"),
        pytest.param(by(expression("app", "Exists")), {"vllm", "other", "empty"}, id="there"),
        pytest.param(by(expression("app", "DoesNotExist")), {"prefixed", "bare"}, id="not there"),
        pytest.param(by(expression("example.com/app", "In", "vllm")), {"prefixed"}, id="a prefix"),
        pytest.param(by(expression("in", "In", "notin")), {"empty"}, id="a word of the API server's"),
        pytest.param(by(expression("in", "DoesNotExist")), PODS.keys() - {"empty"}, id="the same, not there"),
        pytest.param(by(app="x,tier=y"), set(), id="another requirement within a value"),
        pytest.param(by(expression("app in (vllm),tier", "Exists")), set(), id="another requirement within a key"),
        pytest.param(by(expression("app", "In", "no label", "vllm")), {"vllm"}, id="one value that no label can have"),
        pytest.param(by(expression("app", "In", "no label")), set(), id="only such values"),
        pytest.param(by(expression("app", "NotIn", "a)", "vllm")), PODS.keys() - {"vllm"}, id="one of them not wanted"),
        pytest.param(by(expression("app", "NotIn", "a)")), PODS.keys(), id="only such not wanted"),
        pytest.param(by(expression("A/b/c", "Exists")), set(), id="a key that no label can have"),
        pytest.param(by(expression("-", "DoesNotExist")), PODS.keys(), id="such a key is not there"),
        pytest.param(by(expression("-", "NotIn", "x"), app="vllm"), {"vllm"}, id="nor has it a value"),
        pytest.param(by(expression("UPPER/app", "Exists")), set(), id="a prefix that no key can have"),
        pytest.param(by(expression(f"{'a' * 254}/app", "Exists")), set(), id="a prefix that is too long"),
        pytest.param(by(expression("a" * 64, "Exists")), set(), id="a key that is too long"),
        pytest.param(by(expression("app", "Like", "vllm")), set(), id="an operator of the future"),
    ],
)
def test_the_api_server_selects_the_same(kube: Kube, pods_path: str, selector: dict[str, Any], selected: set[str]):
    assert {name for name, labels in PODS.items() if matches(selector, labels)} == selected
    asked = query(selector)
    if asked is None:
        assert selected == set()
        return
    found = kube.get(f"{pods_path}?labelSelector={asked.replace(' ', '%20')}")
    assert found is not None
    assert {pod["metadata"]["name"] for pod in found["items"]} == selected


@pytest.mark.controlplane
def test_the_longest_selector_that_a_pool_may_have_is_not_too_long(kube: Kube, pods_path: str):
    keys = [f"{number:063}" for number in range(64)]
    values = [f"{number:063}" for number in range(64)]
    labels = {f"example.com/{key}": key for key in keys}
    asked = query(by(*(expression(f"{'a' * 253}/{key}", "NotIn", *values) for key in keys), **labels))

    assert asked is not None
    assert kube.get(f"{pods_path}?labelSelector={asked.replace(' ', '%20')}") is not None
