"""What somebody who has the operator's token can do to Secrets, each tried on a real API server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane import Cluster
from tests.operator.kube import Kube
from tests.operator.stolen_token import LABELS, OF_OTHERS, OWNER, patched, refusal, stolen_token

pytestmark = pytest.mark.controlplane

_CORE = "/api/v1/namespaces"
_ONLY = "no Secret but the salt key of a ZonePool"

METADATA = {"name": "tenantzone-salt-demo", "labels": LABELS, "ownerReferences": [OWNER]}
SECRET = {"metadata": METADATA, "type": "Opaque", "data": {"key": "AA=="}}


@pytest.fixture(scope="module")
def thief(control_plane: Cluster, operator_kubeconfig: Path) -> Iterator[Kube]:
    with stolen_token(control_plane, operator_kubeconfig) as made:
        yield made


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
        pytest.param(SECRET | {"immutable": True}, _ONLY, id="for ever"),
        pytest.param(SECRET | {"data": {"acme": "AA=="}}, _ONLY, id="another key"),
        pytest.param(SECRET | {"stringData": {"acme": "x"}}, _ONLY, id="another key in plain text"),
        pytest.param(SECRET | {"type": "example.com/other"}, _ONLY, id="another type"),
        pytest.param(
            changed(**TOKEN) | {"type": "kubernetes.io/service-account-token"},
            OF_OTHERS,
            id="a service account's token",
        ),
    ],
)
def test_it_makes_no_secret_but_a_pools_salt_key(thief: Kube, namespace: str, secret: Any, said: str):
    assert said in refusal(thief, "POST", f"{_CORE}/{namespace}/secrets", secret)


def test_it_makes_a_pools_salt_key_and_then_neither_reads_nor_changes_it(thief: Kube, namespace: str):
    path = f"{_CORE}/{namespace}/secrets"
    assert refusal(thief, "POST", path, SECRET) == ""
    assert "already exists" in refusal(thief, "POST", path, SECRET)
    path += "/tenantzone-salt-demo"
    assert "cannot get" in refusal(thief, "GET", path)
    assert "cannot patch" in patched(thief, path, {"data": {"key": "AAAA"}})
    assert "cannot delete" in refusal(thief, "DELETE", path)
