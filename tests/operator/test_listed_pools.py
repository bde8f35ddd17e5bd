"""An operator with rights for listed pools only, as the chart grants them: it serves these, and reports the others."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane import Cluster, ControlPlane
from tests.operator.conftest import MANIFESTS, Operator
from tests.operator.kube import Kube, eventually
from tests.operator.world import POOL, World, conditions, world_in

pytestmark = pytest.mark.controlplane

_USER = "operator-of-listed-pools"
_GROUP = "rbac.authorization.k8s.io"


def binding(kind: str, role: str, namespace: str = "") -> dict[str, Any]:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": _USER, "namespace": namespace},
        "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": role},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": _USER}],
    }


def cluster_role() -> dict[str, Any]:
    """The shipped ClusterRole without the rights that the chart grants by namespace where pools are listed."""
    bodies = yaml.safe_load_all((MANIFESTS / "base" / "rbac.yaml").read_text())
    (role,) = (body for body in bodies if body["kind"] == "ClusterRole")
    role["metadata"]["name"] = _USER
    role["rules"] = [rule for rule in role["rules"] if not {"pods", "configmaps", "secrets"} & {*rule["resources"]}]
    return role


def listed(namespace: str, *pools: str) -> dict[str, Any]:
    """The chart's Role for a namespace in which these pools are listed."""
    names = [f"tenantzone-{pool}" for pool in pools]
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "Role",
        "metadata": {"name": _USER, "namespace": namespace},
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "patch"]},
            {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": names, "verbs": ["get", "patch"]},
            {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["create"]},
        ],
    }


def apply(cluster: Cluster, *items: dict[str, Any]) -> None:
    cluster.kubectl("apply", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


@pytest.fixture
def operator(control_plane: Cluster, namespace: str, tmp_path: Path) -> Iterator[Operator]:
    assert isinstance(control_plane, ControlPlane), "a cluster that was named has no such user"
    roles = [cluster_role(), binding("ClusterRole", _USER), listed(namespace, POOL), binding("Role", _USER, namespace)]
    apply(control_plane, *roles)
    operator = Operator(control_plane.user_kubeconfig(_USER, groups=()), tmp_path / "operator.log")
    operator.start()
    operator.await_running()
    yield operator
    assert operator.stop() == 0


@pytest.fixture
def world(control_plane: Cluster, kube: Kube, namespace: str, operator: Operator) -> Iterator[World]:
    with world_in(control_plane, kube, namespace) as made:
        yield made


def test_a_pool_that_is_not_listed_says_so_once_until_it_is(world: World, control_plane: Cluster, operator: Operator):
    world.add_pool()
    world.add_zone("acme", reserved="10%")
    world.add_engine()
    world.add_pool("other")
    world.add_zone("beta", pool="other", reserved="10%")
    world.await_ready("acme")

    refusal = world.await_condition("beta", "Accepted", "False", "PoolNotServed")["message"]
    assert refusal.startswith("ZonePool other is not served: the pool's ConfigMap can't be read: 403")
    assert "add the pool to the value pools of its chart" in refusal
    assert conditions(world.pool("other"))["Stalled"]["reason"] == "PoolNotServed"
    world.kubectl("annotate", "zonepool", "other", "looked=at")
    eventually(lambda: world.pool("other")["metadata"]["annotations"])
    assert [line for line in operator.log.splitlines() if "WARN" in line and "/other" in line][1:] == []

    apply(control_plane, listed(world.namespace, POOL, "other"))
    world.change_zone("beta", weight=2)
    world.await_condition("beta", "Accepted", "True")
    eventually(lambda: "Stalled" not in conditions(world.pool("other")))


def test_in_a_namespace_without_listed_pools_each_pool_says_so(
    world: World, control_plane: Cluster, operator: Operator
):
    control_plane.kubectl("delete", "rolebinding", _USER, "--namespace", world.namespace)
    world.add_pool()
    world.add_zone("acme", reserved="10%")

    refusal = world.await_condition("acme", "Accepted", "False", "PoolNotServed")["message"]
    assert refusal.startswith(f"ZonePool {POOL} is not served: the pool's pods can't be listed: 403")
    apply(control_plane, binding("Role", _USER, world.namespace))
    world.await_condition("acme", "Accepted", "True")


def test_nothing_is_counted_of_a_pool_that_another_operator_serves(
    world: World, control_plane: Cluster, operator: Operator, tmp_path: Path
):
    def refused() -> float | None:
        labels = {"pool": "other", "condition": "accepted", "status": "false"}
        return operator.scrape().value("tenantzone_pool_zones", **labels)

    world.add_pool("other")
    world.add_zone("beta", pool="other", reserved="10%")
    world.await_condition("beta", "Accepted", "False", "PoolNotServed")
    eventually(lambda: refused() == 1)
    another = Operator(control_plane.kubeconfig, tmp_path / "another.log")
    another.start()
    try:
        world.await_condition("beta", "Accepted", "True")
        eventually(lambda: refused() is None)
    finally:
        assert another.stop() == 0
