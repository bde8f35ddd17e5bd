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


def allows(schema: dict[str, Any], value: Any) -> bool:
    """Whether a schema has all fields of a value, and all values of its enums."""
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, dict) and "properties" in schema:
        fields = schema["properties"]
        return all(key in fields and allows(fields[key], each) for key, each in value.items())
    if isinstance(value, list) and "items" in schema:
        return all(allows(schema["items"], each) for each in value)
    return True


def older_uses(schemas: Path) -> list[Path]:
    """Samples without fields, and values of fields, that schemas do not have."""
    definitions = [yaml.safe_load(path.read_text()) for path in schemas.glob("*.yaml")]
    specs = {
        definition["spec"]["names"]["kind"]: definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"][
            "properties"
        ]["spec"]
        for definition in definitions
    }
    return [
        path
        for path in sorted(USES.iterdir())
        if all(
            sample["kind"] not in specs or allows(specs[sample["kind"]], sample["spec"])
            for sample in yaml.safe_load_all(path.read_text())
        )
    ]


def test_a_sample_with_a_newer_field_or_value_is_not_expected_of_older_schemas(tmp_path: Path):
    for path in CRDS.glob("*.yaml"):
        (tmp_path / path.name).write_text(path.read_text())
    assert older_uses(tmp_path) == sorted(USES.iterdir())

    zones = tmp_path / "tenantzones.yaml"
    zones.write_text(
        zones.read_text().replace("enum: [LRU, Clock, LFU]", "enum: [LRU, LFU]").replace(" scrub:", " gone:")
    )
    missing = {path.name for path in USES.iterdir()} - {path.name for path in older_uses(tmp_path)}
    assert {"clock.yaml"} <= missing < {path.name for path in USES.iterdir() if "TenantZone" in path.read_text()}
    assert "lfu.yaml" not in missing


def test_what_was_stored_by_the_last_release_is_valid_unchanged(past: Clinic, schemas: Path, clinic_kube: Kube):
    files = [f"--filename={path}" for path in older_uses(schemas)]
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
