"""An operator without the right to create Secrets: it reports that in the pool's status, and does everything else."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.controlplane import Cluster, ControlPlane
from tests.operator.conftest import MANIFESTS, Operator
from tests.operator.kube import Kube, eventually
from tests.operator.world import World, conditions, world_in

pytestmark = pytest.mark.controlplane

_USER = "operator-without-secrets"


def roles() -> list[dict[str, object]]:
    """The shipped ClusterRole without Secrets, and its bindings."""
    bodies = yaml.safe_load_all((MANIFESTS / "base" / "rbac.yaml").read_text())
    (role,) = (body for body in bodies if body["kind"] == "ClusterRole")
    role["metadata"]["name"] = _USER
    role["rules"] = [rule for rule in role["rules"] if rule["resources"] != ["secrets"]]
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _USER},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": _USER},
        "subjects": [{"apiGroup": group, "kind": "User", "name": _USER}],
    }
    return [role, binding]


@pytest.fixture
def world(control_plane: Cluster, kube: Kube, namespace: str, tmp_path: Path) -> Iterator[World]:
    assert isinstance(control_plane, ControlPlane), "a cluster that was named has no such user"
    control_plane.kubectl(
        "apply", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": roles()})
    )
    operator = Operator(control_plane.user_kubeconfig(_USER, groups=()), tmp_path / "operator.log")
    operator.start()
    operator.await_running()
    with world_in(control_plane, kube, namespace) as made:
        yield made
    assert operator.stop() == 0


def test_it_says_so_and_goes_on(world: World):
    world.add_pool()
    world.add_zone("acme", reserved="10%")
    engine = world.add_engine()
    world.await_ready("acme")

    def reported() -> bool:
        found = conditions(world.pool())["SaltNotShared"]
        assert found["reason"] == "SecretNotMade", found
        assert "secrets is forbidden" in found["message"]
        assert "mount it at /etc/tenantzone/salt: engine-0" in found["message"]
        return True

    eventually(reported)
    assert engine.salt_key.id == ""
    assert conditions(world.pool())["Ready"]["status"] == "True"
