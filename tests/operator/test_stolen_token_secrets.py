"""What a holder of the operator's token can do to Secrets, each tried on a real API server."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.operator.kube import Kube
from tests.operator.stolen_token import LABELS, OF_OTHERS, OWNER, patched, refusal

pytestmark = pytest.mark.controlplane

_CORE = "/api/v1/namespaces"
_SYSTEM = f"{_CORE}/tenantzone-system/secrets"
_ONLY = "no Secret but a ZonePool's salt key and admin token, and its own key"
_KIND = "only Secrets of type Opaque"

METADATA = {"name": "tenantzone-salt-demo", "labels": LABELS, "ownerReferences": [OWNER]}
SECRET = {"metadata": METADATA, "type": "Opaque", "data": {"key": "AA=="}}


ADMIN = SECRET | {
    "metadata": METADATA | {"name": "tenantzone-admin-demo"},
    "data": {"token": "AA==", "accepted": "AA=="},
}
KEY = {"metadata": {"name": "tenantzone-operator-key"}, "data": {"key": "AA=="}}


def changed(**metadata: Any) -> dict[str, Any]:
    return SECRET | {"metadata": METADATA | metadata}


TOKEN = {"annotations": {"kubernetes.io/service-account.name": "default"}}


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        pytest.param(changed(name="tenant-keys"), _ONLY, id="another name"),
        pytest.param(changed(name="tenantzone-salt-other"), _ONLY, id="another pool's name"),
        pytest.param(changed(labels={}), _ONLY, id="no label"),
        pytest.param(changed(ownerReferences=[]), _ONLY, id="no owner"),
        pytest.param(changed(ownerReferences=[OWNER, OWNER | {"uid": "2"}]), _ONLY, id="two owners"),
        pytest.param(changed(ownerReferences=[OWNER | {"name": "other"}]), _ONLY, id="another owner"),
        pytest.param(changed(ownerReferences=[OWNER | {"apiVersion": "v1", "kind": "Pod"}]), _ONLY, id="a pod's"),
        pytest.param(changed(finalizers=["example.com/held"]), OF_OTHERS, id="a finalizer"),
        pytest.param(changed(annotations={"example.com/a": "1"}), OF_OTHERS, id="an annotation"),
        pytest.param(SECRET | {"immutable": True}, _KIND, id="immutable"),
        pytest.param(SECRET | {"data": {"acme": "AA=="}}, _ONLY, id="another key"),
        pytest.param(SECRET | {"stringData": {"acme": "x"}}, _ONLY, id="another key in plain text"),
        pytest.param(SECRET | {"type": "example.com/other"}, _KIND, id="another type"),
        pytest.param(changed(name="tenantzone-admin-demo"), _ONLY, id="a salt key as an admin token"),
        pytest.param(changed() | {"data": {"token": "AA=="}}, _ONLY, id="an admin token as a salt key"),
        pytest.param(ADMIN | {"data": {"acme": "AA=="}}, _ONLY, id="another key next to the token"),
        pytest.param(KEY, _ONLY, id="the operator's key in another namespace"),
        pytest.param(
            changed(**TOKEN) | {"type": "kubernetes.io/service-account-token"},
            OF_OTHERS,
            id="a service account's token",
        ),
    ],
)
def test_it_makes_no_secret_but_a_pools_salt_key(thief: Kube, namespace: str, secret: Any, said: str):
    assert said in refusal(thief, "POST", f"{_CORE}/{namespace}/secrets", secret)


@pytest.mark.parametrize("secret", [SECRET, ADMIN])
def test_it_makes_a_pools_secrets_and_then_neither_reads_nor_changes_them(
    thief: Kube, namespace: str, secret: dict[str, Any]
):
    path = f"{_CORE}/{namespace}/secrets"
    assert refusal(thief, "POST", path, secret) == ""
    assert "already exists" in refusal(thief, "POST", path, secret)
    path += f"/{secret['metadata']['name']}"
    assert "cannot get" in refusal(thief, "GET", path)
    assert "cannot patch" in patched(thief, path, {"data": {"key": "AAAA"}})
    assert "cannot delete" in refusal(thief, "DELETE", path)


@pytest.fixture
def no_operator_key(kube: Kube) -> Iterator[None]:
    """Removes the operator's key, and restores it afterwards."""
    path = f"{_SYSTEM}/tenantzone-operator-key"
    before = kube.get(path)
    if before is not None:
        kube.call("DELETE", path)
    yield
    if kube.get(path) is not None:
        kube.call("DELETE", path)
    if before is not None:
        kube.call("POST", _SYSTEM, KEY | {"data": before["data"]})


@pytest.mark.usefixtures("no_operator_key")
def test_it_makes_and_reads_the_operators_own_key_and_does_not_change_it(thief: Kube):
    """The admin tokens are made from it, so a holder of the token can read the engines' reports."""
    for spoiled in (KEY | {"data": {"other": "AA=="}}, {**KEY, "metadata": KEY["metadata"] | {"labels": {"a": "b"}}}):
        assert refusal(thief, "POST", _SYSTEM, spoiled)
    while_it_is_changed = KEY | {"data": {"key": "AA==", "previous": "AA=="}}
    assert refusal(thief, "POST", _SYSTEM, while_it_is_changed) == ""
    path = f"{_SYSTEM}/tenantzone-operator-key"
    assert refusal(thief, "GET", path) == ""
    assert "cannot get" in refusal(thief, "GET", f"{_SYSTEM}/another")
    assert "cannot list" in refusal(thief, "GET", _SYSTEM)
    assert "cannot patch" in patched(thief, path, {"data": {"key": "AAAA"}})
    assert "cannot delete" in refusal(thief, "DELETE", path)
