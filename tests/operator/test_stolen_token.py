"""What a holder of the operator's token can and can't do, each tried on a real API server."""

from collections.abc import Iterator
from typing import Any

import pytest

from tenantzone_contract.zone_config.config import CONFIG_HASH_ANNOTATION
from tenantzone_contract.zone_config.identity import SECRETS_HASH_ANNOTATION
from tests.operator.fleet import pod_manifest
from tests.operator.kube import Kube
from tests.operator.lease import LEASE_PATH, NAMESPACE
from tests.operator.stolen_token import AS_MANAGER, OF_OTHERS, OWNER, patched, refusal

pytestmark = pytest.mark.controlplane

_CORE = "/api/v1/namespaces"
_OURS = "/apis/tenantzone.io/v1alpha1/namespaces"
_EVENTS = "/apis/events.k8s.io/v1/namespaces"

HASH = "sha256:" + 64 * "0"
MANAGED_BY_ANOTHER = {
    "manager": "another",
    "operation": "Update",
    "apiVersion": "v1",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:spec": {"f:containers": {}}},
}
OF_A_LEASE: tuple[dict[str, Any], ...] = (
    {"finalizers": ["mine.example/kept"]},
    {"labels": {"mine": "1"}},
    {"annotations": {"mine": "1"}},
    {"ownerReferences": [OWNER]},
)
REGARDING = {"apiVersion": "tenantzone.io/v1alpha1", "kind": "TenantZone", "name": "acme"}


@pytest.fixture(scope="module")
def pod_path(kube: Kube) -> Iterator[str]:
    """The path of another owner's pod, in the namespace `default`."""
    kube.call("POST", f"{_CORE}/default/pods", pod_manifest("guarded", {"app": "theirs"}))
    yield f"{_CORE}/default/pods/guarded"
    kube.call("DELETE", f"{_CORE}/default/pods/guarded?gracePeriodSeconds=0")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"spec": {"containers": [{"name": "engine", "image": "mine"}]}}, id="its image"),
        pytest.param({"metadata": {"labels": {"app": "mine"}}}, id="a label"),
        pytest.param({"metadata": {"finalizers": ["mine.example/kept"]}}, id="a finalizer"),
        pytest.param({"metadata": {"annotations": {"theirs": "mine"}}}, id="another annotation"),
        pytest.param({"metadata": {"annotations": {CONFIG_HASH_ANNOTATION: 200_000 * "x"}}}, id="a long text"),
        pytest.param({"metadata": {"annotations": {CONFIG_HASH_ANNOTATION: HASH + "0"}}}, id="more than a hash"),
        pytest.param({"metadata": {"annotations": {CONFIG_HASH_ANNOTATION: HASH + "\n"}}}, id="a hash and a line"),
        pytest.param({"metadata": {"annotations": {SECRETS_HASH_ANNOTATION: HASH + "0"}}}, id="of Secrets"),
        pytest.param({"metadata": {"generateName": "mine"}}, id="what it was named after"),
        pytest.param({"metadata": {"managedFields": [{}]}}, id="who manages what"),
        pytest.param({"metadata": {"managedFields": [MANAGED_BY_ANOTHER]}}, id="another's share"),
    ],
)
def test_of_a_pod_it_does_not_change(thief: Kube, pod_path: str, change: Any):
    assert "the operator changes no" in patched(thief, pod_path + AS_MANAGER, change)


@pytest.mark.parametrize("annotation", [CONFIG_HASH_ANNOTATION, SECRETS_HASH_ANNOTATION])
def test_of_a_pod_it_changes_its_own_annotation(thief: Kube, kube: Kube, pod_path: str, annotation: str):
    def may_annotate(hash_: str) -> bool:
        return patched(thief, pod_path + AS_MANAGER, {"metadata": {"annotations": {annotation: hash_}}}) == ""

    assert may_annotate(HASH)
    assert may_annotate("sha256:" + 64 * "f")
    assert "the operator changes no" in patched(thief, pod_path, {"metadata": {"annotations": None}})
    kube.merge(pod_path, {"metadata": {"annotations": {annotation: "by hand", "theirs": "1"}}})
    assert may_annotate(HASH)


def test_it_annotates_a_pod_that_many_manage(thief: Kube, kube: Kube, namespace: str):
    """With more than ten managers, the API server merges them into one, ``ancient-changes``."""
    path = f"{_CORE}/{namespace}/pods"
    kube.call("POST", path, pod_manifest("managed", {"app": "theirs"}))
    path += "/managed"
    for number in range(12):
        change = {"metadata": {"annotations": {f"example.com/{number}": "1"}}}
        kube.call("PATCH", f"{path}?fieldManager=of-{number}", change, "application/merge-patch+json")

    assert patched(thief, path + AS_MANAGER, {"metadata": {"annotations": {CONFIG_HASH_ANNOTATION: HASH}}}) == ""


def test_of_its_lease_it_changes_only_who_leads(thief: Kube, kube: Kube):
    path, metadata = LEASE_PATH.rpartition("/")[0], {"name": "tenantzone-operator", "namespace": NAMESPACE}
    if kube.get(LEASE_PATH) is not None:
        kube.call("DELETE", LEASE_PATH)
    for change in OF_A_LEASE:
        assert OF_OTHERS in refusal(thief, "POST", path, {"metadata": metadata | change, "spec": {}})
    assert refusal(thief, "POST", path, {"metadata": metadata, "spec": {}}) == ""
    found = kube.get(LEASE_PATH)
    assert found is not None
    for change in OF_A_LEASE:
        assert OF_OTHERS in refusal(thief, "PUT", LEASE_PATH, found | {"metadata": found["metadata"] | change})
    assert refusal(thief, "PUT", LEASE_PATH, found | {"spec": {"holderIdentity": "mine"}}) == ""
    kube.call("DELETE", LEASE_PATH)
    assert kube.get(LEASE_PATH) is None


def event(namespace: str, **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "recorded", "namespace": namespace} | fields.pop("metadata", {}),
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "tenantzone.io/tenantzone-operator",
        "reportingInstance": "any",
        "regarding": REGARDING | {"namespace": namespace} | fields.pop("regarding", {}),
        "action": "Refuse",
        "reason": "Overcommitted",
        "type": "Warning",
        "note": "any",
        **fields,
    }


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"reportingController": "kubelet"}, "in its own name only"),
        ({"regarding": {"apiVersion": "v1", "kind": "Pod"}}, "our own kinds only"),
        ({"regarding": {"apiVersion": "example.com/v1"}}, "our own kinds only"),
        ({"related": {"apiVersion": "v1", "kind": "Pod", "name": "x"}}, "our own kinds only"),
        ({"regarding": {"fieldPath": 200_000 * "x"}}, "our own kinds only"),
        ({"regarding": {"resourceVersion": 200_000 * "1"}}, "our own kinds only"),
        ({"regarding": {"uid": 200_000 * "1"}}, "our own kinds only"),
        ({"metadata": {"finalizers": ["mine.example/kept"]}}, OF_OTHERS),
        ({"metadata": {"labels": {"mine": "1"}}}, OF_OTHERS),
        ({"metadata": {"annotations": {"mine": "1"}}}, OF_OTHERS),
        ({"metadata": {"ownerReferences": [OWNER]}}, OF_OTHERS),
    ],
    ids=[
        *("in kubelet's name", "about a pod", "about another's TenantZone", "with a pod"),
        *("a long path", "a long version", "a long uid", "a finalizer", "a label", "an annotation", "an owner"),
    ],
)
def test_it_forges_no_event(thief: Kube, namespace: str, fields: Any, said: str):
    path = f"{_EVENTS}/{namespace}/events"

    assert said in refusal(thief, "POST", path, event(namespace, **fields))


def test_it_changes_no_event_of_others(thief: Kube, kube: Kube, namespace: str):
    path = f"{_EVENTS}/{namespace}/events"
    kube.call("POST", path, event(namespace, reportingController="kubelet"))

    mine = {"reportingController": "tenantzone.io/tenantzone-operator"}
    series = {"series": {"count": 9, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}}
    assert "in its own name only" in patched(thief, f"{path}/recorded", series)
    assert "field is immutable" in patched(thief, f"{path}/recorded", mine | series)


def test_it_reports_our_kinds(thief: Kube, namespace: str):
    path = f"{_EVENTS}/{namespace}/events"

    assert refusal(thief, "POST", path, event(namespace)) == ""
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}
    assert patched(thief, f"{path}/recorded", series) == ""


def test_what_a_stolen_token_can_do(thief: Kube, kube: Kube, namespace: str):
    """As the documentation says."""
    kube.call("POST", f"{_CORE}/{namespace}/configmaps", {"metadata": {"name": "theirs"}, "data": {"key": "theirs"}})
    kube.call("POST", f"{_CORE}/{namespace}/pods", pod_manifest("theirs", {"app": "theirs"}))
    for kind, name, spec in (
        ("ZonePool", "demo", {"selector": {"matchLabels": {"app": "vllm"}}}),
        ("TenantZone", "acme", {"pool": "demo"}),
    ):
        body = {"apiVersion": "tenantzone.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        kube.call("POST", f"{_OURS}/{namespace}/{kind.lower()}s", body)

    read = thief.get(f"{_CORE}/{namespace}/configmaps/theirs")
    assert read is not None
    assert read["data"] == {"key": "theirs"}
    assert "cannot list" in refusal(thief, "GET", f"{_CORE}/{namespace}/configmaps")
    assert "cannot get" in refusal(thief, "GET", f"{_CORE}/{namespace}/secrets/theirs")
    listed = thief.get("/api/v1/pods")
    assert listed is not None
    assert "theirs" in {pod["metadata"]["name"] for pod in listed["items"]}
    lie = {"status": {"conditions": [], "zonesAccepted": 7}, "metadata": {"labels": {"mine": "1"}}}
    assert patched(thief, f"{_OURS}/{namespace}/zonepools/demo/status", lie) == ""
    pool = kube.get(f"{_OURS}/{namespace}/zonepools/demo")
    assert pool is not None
    assert pool["status"]["zonesAccepted"] == 7
    assert "labels" not in pool["metadata"], "with a status nothing else is written"
    for path in ("tenantzones/acme", "zonepools/demo"):
        assert "cannot patch" in patched(thief, f"{_OURS}/{namespace}/{path}", {"spec": {"pool": "mine"}})
        assert "cannot delete" in refusal(thief, "DELETE", f"{_OURS}/{namespace}/{path}")
