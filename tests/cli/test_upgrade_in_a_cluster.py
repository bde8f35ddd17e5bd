"""Stored objects after the CRDs are replaced by newer ones, and by the older ones again."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from hack.compatibility import newest_release
from tests.cli.conftest import REPOSITORY, Clinic
from tests.operator.kube import Kube, eventually
from tests.operator.stolen_token import refusal

pytestmark = pytest.mark.controlplane

CRDS = REPOSITORY / "crds"
RELEASED = newest_release(CRDS / "released")
USES = REPOSITORY / "manifests" / "samples" / "uses"
PATH = "/apis/tenantzone.io/v1alpha1/namespaces/past/tenantzones"


@pytest.fixture
def past(clinic: Clinic) -> Iterator[Clinic]:
    """A cluster with the schemas of the last release."""
    clinic.kubectl("apply", "--server-side", "--force-conflicts", "--filename", str(RELEASED))
    clinic.kubectl("wait", "--for=condition=Established", "--timeout=30s", "--filename", str(RELEASED))
    clinic.create_namespace("past")
    yield clinic
    clinic.delete_namespace("past")
    clinic.install_crds()


def with_a_new_field() -> str:
    definition = yaml.safe_load((CRDS / "tenantzones.yaml").read_text())
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["novel"] = {"type": "string"}
    return json.dumps(definition)


def install(clinic: Clinic, definition: str) -> None:
    clinic.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=definition)


def spec(kube: Kube, name: str) -> dict[str, Any]:
    found = kube.get(f"{PATH}/{name}")
    assert found is not None
    return found["spec"]


NEWER_USES = {
    "adapters.yaml",
    "advice-pool.yaml",
    "auto-register-pool.yaml",
    "fairness.yaml",
    "identity-certificate.yaml",
    "identity-header.yaml",
    "identity-jwt.yaml",
    "identity-keys.yaml",
    "idle-eviction.yaml",
    "kv-cache-group.yaml",
    "kv-storages.yaml",
    "latency.yaml",
    "lfu.yaml",
    "manager-pool.yaml",
    "no-store.yaml",
    "planned-pool.yaml",
    "queue.yaml",
    "request-limits.yaml",
    "retention.yaml",
    "seats.yaml",
    "tiers-pool.yaml",
    "tiers.yaml",
}
"""Samples with fields, or values of fields, that the last release does not know."""


def test_what_was_stored_by_the_last_release_is_valid_unchanged(past: Clinic, clinic_kube: Kube):
    files = [f"--filename={path}" for path in sorted(USES.iterdir()) if path.name not in NEWER_USES]
    past.kubectl("apply", "--namespace=past", "--server-side", *files)
    before = clinic_kube.get(PATH)["items"]

    past.install_crds()
    again = past.kubectl("apply", "--namespace=past", "--server-side", *files, "--output=json")

    after = {item["metadata"]["name"]: item for item in json.loads(again.stdout)["items"]}
    assert {item["metadata"]["name"] for item in before} <= after.keys()
    for item in before:
        changed = after[item["metadata"]["name"]]
        assert changed["spec"] == item["spec"]
        assert changed["metadata"]["generation"] == item["metadata"]["generation"]


def test_a_downgrade_hides_new_fields_and_the_next_write_loses_them(past: Clinic, clinic_kube: Kube):
    older, newer = (RELEASED / "tenantzones.yaml").read_text(), with_a_new_field()
    install(past, newer)
    for name in ("rested", "labelled", "reported"):
        body = {"apiVersion": "tenantzone.io/v1alpha1", "kind": "TenantZone", "metadata": {"name": name}}
        # The API server takes a moment to serve a changed schema.
        zone = body | {"spec": {"pool": "demo", "reserved": 5, "novel": "yes"}}
        eventually(lambda zone=zone: clinic_kube.call("POST", f"{PATH}?fieldValidation=Strict", zone))

    install(past, older)
    eventually(lambda: "novel" not in spec(clinic_kube, "rested"))
    assert spec(clinic_kube, "rested")["reserved"] == 5
    clinic_kube.merge(f"{PATH}/labelled", {"metadata": {"labels": {"touched": "yes"}}})
    clinic_kube.merge(f"{PATH}/reported/status", {"status": {"held": 3}})

    install(past, newer)
    eventually(lambda: spec(clinic_kube, "rested").get("novel") == "yes")
    assert "novel" not in spec(clinic_kube, "labelled")
    assert "novel" not in spec(clinic_kube, "reported")


def test_a_header_without_proof_that_was_stored_freezes_nothing(past: Clinic, clinic_kube: Kube):
    pools = PATH.replace("tenantzones", "zonepools")
    header = {"trustedHeader": {"name": "x-tenant", "from": ["10.0.0.0/8"]}}
    body = {"apiVersion": "tenantzone.io/v1alpha1", "kind": "ZonePool", "metadata": {"name": "older"}}
    stored = {"selector": {"matchLabels": {"app": "vllm"}}, "identity": header}
    eventually(lambda: clinic_kube.call("POST", pools, body | {"spec": stored}))

    past.install_crds()
    newer = body | {"metadata": {"name": "newer"}, "spec": stored | {"identity": {"jwt": {"issuer": "https://issuer"}}}}
    eventually(lambda: "audiences" in refusal(clinic_kube, "POST", f"{pools}?dryRun=All", newer))

    unproven = newer | {"spec": stored}
    assert "needs a proof" in refusal(clinic_kube, "POST", f"{pools}?dryRun=All", unproven)
    clinic_kube.merge(f"{pools}/older", {"spec": {"adminPort": 9000}})
    clinic_kube.merge(f"{pools}/older/status", {"status": {"message": "written"}})
    proof = {"secretHeader": {"name": "x-proof"}}
    clinic_kube.merge(f"{pools}/older", {"spec": {"identity": {"trustedHeader": {"proof": proof}}}})
