"""The shipped rights: all that the operator needs, and none that it does not use."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import yaml

from hack.controlplane import Cluster, ControlPlane
from tests.operator.audit import AuditLog, Request
from tests.operator.conftest import MANIFESTS, SERVICE_ACCOUNT, Operator
from tests.operator.kube import Kube, eventually
from tests.operator.lease import LEASE_PATH, NAME, NAMESPACE
from tests.operator.replicas import SHORT
from tests.operator.world import World, world_in

pytestmark = pytest.mark.controlplane

_OURS = "/apis/tenantzone.io/v1alpha1/namespaces/default"

Right = tuple[str, str, str]
"""API group, resource with subresource, verb."""


def granted() -> set[Right]:
    """Rights granted by the roles in the manifests."""
    bodies = yaml.safe_load_all((MANIFESTS / "base" / "rbac.yaml").read_text())
    return _rights([rule for body in bodies if body["kind"] in ("Role", "ClusterRole") for rule in body["rules"]])


def _rights(rules: list[dict[str, Any]]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(request: Request) -> set[Right]:
    rights = {(request.group, request.resource, request.verb)}
    if request.verb == "patch" and request.created:
        # A server-side apply of a missing object needs both.
        rights.add((request.group, request.resource, "create"))
    return rights


@pytest.fixture(scope="module")
def plane(control_plane: Cluster, operator_kubeconfig: Path) -> ControlPlane:
    """A control plane with the shipped roles."""
    assert isinstance(control_plane, ControlPlane), "a cluster that was named has no audit log for us"
    return control_plane


@pytest.fixture(scope="module")
def record(plane: ControlPlane, kube: Kube, operator_kubeconfig: Path, tmp_path_factory: Any) -> list[Request]:
    """The operator's requests from its start to its end, with everything in between that makes it write."""
    audit = AuditLog(plane.audit_log)
    plane.kubectl("delete", "lease", NAME, "--namespace", NAMESPACE, "--ignore-not-found")
    flags = ("--leader-elect-namespace", NAMESPACE, *SHORT)
    operator = Operator(operator_kubeconfig, tmp_path_factory.mktemp("rights") / "operator.log", *flags)
    operator.start()
    name = "test-rights"
    plane.create_namespace(name)
    try:
        with world_in(plane, kube, name) as world:
            full_round(world)
        assert operator.stop() == 0
    finally:
        plane.delete_namespace(name)
    return audit.requests(SERVICE_ACCOUNT)


def full_round(world: World) -> None:
    """A pool from its first zone to its last, twice with the troubles that cause an Event."""
    world.add_pool()
    engine = world.add_engine()
    world.add_zone("acme", reserved="40%")
    world.add_zone("burst", limit="60%")
    world.await_ready("acme", "burst")
    for reserved in ("80%", "70%"):
        world.add_zone("greedy", reserved=reserved)
        world.await_condition("greedy", "Accepted", "False", "PoolOvercommitted")
        world.delete_zone("greedy")
    for reserved in ("30%", "35%"):
        engine.refusal = "not today"
        world.change_zone("acme", reserved=reserved)
        world.await_condition("acme", "Programmed", "False", "ConfigRejected")
        engine.refusal = ""
        engine.sync()
        world.await_ready("acme")
    engine.hang_up()
    world.await_condition("acme", "Ready", "Unknown", "EngineUnreachable")
    engine.come_back()
    world.kube.call("DELETE", world.config_path)
    world.change_zone("acme", reserved="20%")
    world.await_ready("acme")
    world.delete_zone("burst")
    eventually(lambda: world.entries() == {"acme": "20%"})


def test_nothing_that_it_asked_for_was_forbidden(record: list[Request]):
    assert [request for request in record if request.code in (401, 403)] == []


def test_it_used_every_right_that_it_has(record: list[Request]):
    assert granted() - {right for request in record for right in used(request)} == set()


def test_it_asked_for_nothing_beyond_its_own_rights(record: list[Request]):
    """Not even for what every user of a cluster may read, except for the list of kinds."""
    asked = {right for request in record for right in used(request) if not request.resource.startswith("/api")}

    assert asked - granted() == set()


def test_it_asked_for_no_pods_but_those_that_a_pool_selects(record: list[Request]):
    asked = [request for request in record if request.resource == "pods" and request.verb in ("list", "watch")]

    assert {request.verb for request in asked} == {"list", "watch"}
    assert all(request.namespace == "test-rights" for request in asked)
    assert {parse_qs(request.query)["labelSelector"][0] for request in asked} == {"pool in (demo)"}


def test_of_pods_and_config_maps_it_needs_those_of_its_pools_only(record: list[Request]):
    """So the chart's rights for listed pools suffice."""
    in_core = [request for request in record if request.group == "" and request.resource[0] != "/"]
    of_its_own = [request for request in in_core if request.namespace == NAMESPACE]
    asked = [request for request in in_core if request.namespace != NAMESPACE]
    config_maps = [request for request in asked if request.resource == "configmaps" and request.verb != "create"]

    assert {request.resource for request in asked} == {"pods", "configmaps", "secrets"}
    assert {request.namespace for request in asked} == {"test-rights"}
    assert {request.name for request in config_maps} == {"tenantzone-demo"}
    assert {(request.resource, request.name) for request in of_its_own} <= {
        ("secrets", "tenantzone-operator-key"),
        ("secrets", ""),
    }
    assert all(request.verb == "create" for request in of_its_own if not request.name)


@pytest.fixture(scope="module")
def as_operator(plane: ControlPlane, operator_kubeconfig: Path) -> Iterator[Cluster]:
    """The cluster as the operator sees it, with a Secret and a ConfigMap of other owners in it."""
    plane.kubectl("create", "secret", "generic", "keys", "--from-literal=acme=sesame", "--namespace", "default")
    yield Cluster(operator_kubeconfig, plane.server, plane.kubectl_program)
    plane.kubectl("delete", "secret", "keys", "--namespace", "default")


@pytest.mark.parametrize("namespace", ["default", NAMESPACE])
def test_the_api_server_grants_it_this_and_nothing_else(as_operator: Cluster, namespace: str):
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    answer = as_operator.kubectl("create", "--raw", path, "--filename=-", stdin=json.dumps(review))
    status = json.loads(answer.stdout)["status"]
    # Every user may ask who they are and what they may do.
    about_oneself = {"authorization.k8s.io", "authentication.k8s.io"}
    rules = [rule for rule in status["resourceRules"] if not about_oneself & set(rule["apiGroups"])]

    assert not status["incomplete"]
    of_its_own = {right for right in granted() if right[1] == "leases" or right == ("", "secrets", "get")}
    assert _rights(rules) == granted() - (set() if namespace == NAMESPACE else of_its_own)
    for rule in rules:
        if "update" in rule["verbs"]:
            assert rule["resourceNames"] == [NAME]
        if rule["resources"] == ["secrets"] and "get" in rule["verbs"]:
            assert rule["resourceNames"] == ["tenantzone-operator-key"]


@pytest.mark.parametrize(
    "asked",
    [
        "get secret keys",
        "get secrets --all-namespaces",
        "get secrets --selector=tenantzone.io/pool=demo",
        "create secret generic more",
        "get configmaps --all-namespaces",
        "delete configmap any",
        "delete pod any",
        "delete tenantzone any",
        "delete zonepool any",
        "create namespace more",
        "create token default",
        "get nodes",
        "get tenantzones --as=system:admin",
        f"get lease another --namespace {NAMESPACE}",
        f"delete lease {NAME} --namespace {NAMESPACE}",
    ],
)
def test_it_is_refused(as_operator: Cluster, asked: str):
    answer = as_operator.kubectl(*asked.split(), check=False)

    assert answer.returncode != 0
    assert "forbidden" in answer.stderr.lower(), answer.stderr


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/namespaces/default/configmaps/any", {"apiVersion": "v1", "kind": "ConfigMap"}),
        ("/api/v1/namespaces/default/pods/any", {"apiVersion": "v1", "kind": "Pod"}),
        ("/api/v1/namespaces/default/pods/any/status", {"apiVersion": "v1", "kind": "Pod"}),
        (f"{_OURS}/tenantzones/any", {"apiVersion": "tenantzone.io/v1alpha1", "kind": "TenantZone"}),
        (f"{_OURS}/zonepools/any", {"apiVersion": "tenantzone.io/v1alpha1", "kind": "ZonePool"}),
        (f"{LEASE_PATH}-of-another", {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}),
    ],
)
def test_it_may_not_replace(as_operator: Cluster, path: str, body: dict[str, object]):
    named = {**body, "metadata": {"name": path.rpartition("/")[2]}}

    answer = as_operator.kubectl("replace", "--raw", path, "--filename=-", stdin=json.dumps(named), check=False)

    assert answer.returncode != 0
    assert "forbidden" in answer.stderr.lower(), answer.stderr
