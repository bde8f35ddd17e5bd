"""What a holder of the operator's token can do to ConfigMaps, each tried on a real API server."""

from typing import Any

import pytest

from tests.operator.kube import Kube
from tests.operator.stolen_token import AS_MANAGER, LABELS, OF_OTHERS, OWNER, patched, refusal

pytestmark = pytest.mark.controlplane

_CORE = "/api/v1/namespaces"

METADATA = {"name": "tenantzone-demo", "labels": LABELS, "ownerReferences": [OWNER]}
CONFIG_MAP = {"metadata": METADATA, "data": {"config.json": "{}"}}


def changed(**metadata: Any) -> dict[str, Any]:
    return CONFIG_MAP | {"metadata": METADATA | metadata}


@pytest.mark.parametrize(
    ("config_map", "said"),
    [
        pytest.param(changed(name="coredns"), "only the runtime configs", id="another name"),
        pytest.param(changed(labels={}), "only the runtime configs", id="no label"),
        pytest.param(
            changed(labels=LABELS | {"tenantzone.io/pool": "other"}), "only the runtime configs", id="another pool's"
        ),
        pytest.param(changed(ownerReferences=[]), "to its ZonePool alone", id="no owner"),
        pytest.param(changed(ownerReferences=[OWNER, OWNER | {"uid": "2"}]), "to its ZonePool alone", id="two owners"),
        pytest.param(changed(ownerReferences=[OWNER | {"name": "other"}]), "to its ZonePool alone", id="another owner"),
        pytest.param(
            changed(ownerReferences=[OWNER | {"apiVersion": "v1", "kind": "Pod"}]), "to its ZonePool alone", id="a pod"
        ),
        pytest.param(
            changed(ownerReferences=[OWNER | {"apiVersion": "example.com/v1"}]), "to its ZonePool", id="another group"
        ),
        pytest.param(changed(finalizers=["example.com/held"]), OF_OTHERS, id="a finalizer"),
        pytest.param(changed(labels=LABELS | {"grafana_dashboard": "1"}), OF_OTHERS, id="another label"),
        pytest.param(changed(annotations={"example.com/a": "1"}), OF_OTHERS, id="an annotation"),
        pytest.param(CONFIG_MAP | {"immutable": True}, "no immutable ConfigMap", id="immutable"),
        pytest.param(CONFIG_MAP | {"data": {"Corefile": "."}}, "nothing into a ConfigMap", id="another key"),
        pytest.param(CONFIG_MAP | {"binaryData": {"x": "AA=="}}, "nothing into a ConfigMap", id="another binary key"),
    ],
)
def test_it_makes_no_config_map_but_a_pools_config(thief: Kube, namespace: str, config_map: Any, said: str):
    assert said in refusal(thief, "POST", f"{_CORE}/{namespace}/configmaps", config_map)


@pytest.mark.parametrize("content", [{}, {"data": {}, "binaryData": {"config.json.gz": "AA=="}}])
def test_it_makes_and_changes_a_pools_config(thief: Kube, namespace: str, content: Any):
    path = f"{_CORE}/{namespace}/configmaps"

    assert refusal(thief, "POST", path, CONFIG_MAP | content) == ""
    assert patched(thief, f"{path}/tenantzone-demo", {"data": {"config.json": "{ }"}}) == ""


def test_of_what_others_have_put_onto_it_nothing_changes(thief: Kube, kube: Kube, namespace: str):
    theirs = changed(labels=LABELS | {"team": "shop"}, annotations={"note": "1"}, finalizers=["example.com/held"])
    path = f"{_CORE}/{namespace}/configmaps"
    kube.call("POST", path, theirs | {"data": {"config.json": "{}", "notes": "ours"}})
    path += "/tenantzone-demo"

    assert patched(thief, path, {"metadata": {"labels": LABELS}, "data": {"config.json": "{ }"}}) == ""
    assert "nothing into a ConfigMap" in patched(thief, path, {"data": {"notes": "mine"}})
    assert "nothing into a ConfigMap" in patched(thief, path, {"data": {"more": "mine"}})
    for metadata in (
        {"labels": {"team": "mine"}},
        {"labels": {"team": None}},
        {"annotations": {"note": "mine"}},
        {"annotations": None},
        {"finalizers": ["example.com/held", "mine.example/held"]},
        {"finalizers": None},
        {"generateName": "mine"},
    ):
        assert OF_OTHERS in patched(thief, path, {"metadata": metadata})
    kube.merge(path, {"metadata": {"finalizers": None}})


def test_it_takes_no_config_map_of_others(thief: Kube, kube: Kube, namespace: str):
    path = f"{_CORE}/{namespace}/configmaps"
    kube.call("POST", path, {"metadata": {"name": "tenantzone-demo"}, "data": {"notes": "theirs"}})
    path += "/tenantzone-demo"

    for change in ({"data": {"notes": None}}, {}, {"data": {"config.json": "{}"}}):
        assert "takes no ConfigMap of others" in patched(thief, path, {"metadata": METADATA} | change)
    found = kube.get(path)
    assert found is not None
    assert found["data"] == {"notes": "theirs"}


@pytest.mark.parametrize(
    "taken_off",
    [
        pytest.param({"labels": None}, id="labels"),
        pytest.param({"labels": {"tenantzone.io/pool": "other"}}, id="another pool's label"),
        pytest.param({"ownerReferences": None}, id="owner"),
        pytest.param({"labels": None, "ownerReferences": None}, id="both"),
    ],
)
def test_it_puts_back_what_others_took_off_a_pools_config(thief: Kube, kube: Kube, namespace: str, taken_off: Any):
    path = f"{_CORE}/{namespace}/configmaps"
    assert refusal(thief, "POST", path + AS_MANAGER, CONFIG_MAP) == ""
    path += "/tenantzone-demo"
    kube.merge(path, {"metadata": taken_off})

    assert patched(thief, path, {"metadata": METADATA}) == ""


def test_a_config_map_without_anything_of_ours_belongs_to_another_owner(thief: Kube, kube: Kube, namespace: str):
    path = f"{_CORE}/{namespace}/configmaps"
    assert refusal(thief, "POST", path + AS_MANAGER, CONFIG_MAP) == ""
    path += "/tenantzone-demo"
    unowned = {"labels": None, "ownerReferences": None, "managedFields": [{}]}
    kube.merge(path, {"metadata": unowned, "data": {"config.json": "theirs"}})

    assert "takes no ConfigMap of others" in patched(thief, path, {"metadata": METADATA})


def test_a_pools_config_goes_to_the_next_pool_of_that_name(thief: Kube, namespace: str):
    path = f"{_CORE}/{namespace}/configmaps"
    assert refusal(thief, "POST", path, CONFIG_MAP) == ""

    another = {"metadata": {"ownerReferences": [OWNER | {"uid": "of-the-next"}]}}
    assert patched(thief, f"{path}/tenantzone-demo", another) == ""
