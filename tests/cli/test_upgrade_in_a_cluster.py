"""Stored objects after the CRDs are replaced by newer ones, and by the older ones again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import REPOSITORY, Clinic
from tests.operator.kube import Kube, eventually
from tests.operator.previous import is_known, previous_schemas

pytestmark = [
    pytest.mark.controlplane,
    pytest.mark.skipif(not is_known(), reason="no history of the previous release here: git fetch --unshallow"),
]

CRDS = REPOSITORY / "crds"
USES = REPOSITORY / "manifests" / "samples" / "uses"
PATH = "/apis/tenantzone.io/v1alpha1/namespaces/past/tenantzones"


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the last release's schemas."""
    return previous_schemas(tmp_path_factory.mktemp("previous"))


@pytest.fixture
def past(clinic: Clinic, schemas: Path) -> Iterator[Clinic]:
    """A cluster with the schemas of the last release."""
    clinic.kubectl("apply", "--server-side", "--force-conflicts", "--filename", str(schemas))
    clinic.kubectl("wait", "--for=condition=Established", "--timeout=30s", "--filename", str(schemas))
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


NEWER_USES: set[str] = set()
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


def test_a_downgrade_hides_new_fields_and_the_next_write_loses_them(past: Clinic, clinic_kube: Kube, schemas: Path):
    older, newer = (schemas / "tenantzones.yaml").read_text(), with_a_new_field()
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
