"""Common to all kinds: valid samples that show each field, and a sentence for each field."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane import Cluster
from tenantzone_operator.cache_manager.declared import read_group, read_storage
from tenantzone_operator.kube.resources import read_pool, read_zone

CRDS = Path(__file__).parents[2] / "crds"
SAMPLES = Path(__file__).parents[2] / "manifests" / "samples"
READ = {"TenantZone": read_zone, "ZonePool": read_pool, "KVStorage": read_storage, "KVCacheGroup": read_group}
USES = sorted((SAMPLES / "uses").glob("*.yaml"))


@pytest.mark.controlplane
def test_the_samples_are_valid(control_plane: Cluster):
    files = ["--filename", str(SAMPLES), "--filename", str(SAMPLES / "refused/overcommit.yaml")]
    control_plane.kubectl("apply", "--dry-run=server", *files)


@pytest.mark.controlplane
@pytest.mark.parametrize("file", USES, ids=lambda file: file.stem)
def test_the_sample_of_a_use_is_applied_without_being_stored(control_plane: Cluster, namespace: str, file: Path):
    applied = control_plane.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "--namespace", namespace),
        *("--output=json", "--filename", str(file)),
    )

    answer = json.loads(applied.stdout)
    for body in answer.get("items", [answer]):
        # A dry run gets neither a version nor, from some servers, a generation.
        body["metadata"] |= {"resourceVersion": "1"}
        read = READ[body["kind"]](body)
        assert read.invalid == ""
    assert control_plane.kubectl("get", "zones", "--namespace", namespace, "--output=name").stdout == ""


@pytest.mark.parametrize("file", sorted(CRDS.glob("*.yaml")), ids=lambda file: file.stem)
def test_each_field_that_can_be_set_is_shown_in_a_sample(file: Path):
    definition = yaml.safe_load(file.read_text())["spec"]
    (version,) = definition["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    if file.stem == "zonepools":
        # Deprecated, and without effect.
        spec["properties"]["identity"]["properties"]["apiKeys"]["properties"].pop("secretSelector")
    bodies = [body for sample in USES for body in yaml.safe_load_all(sample.read_text())]
    shown = {path for body in bodies if body["kind"] == definition["names"]["kind"] for path in paths(body["spec"], "")}

    assert {path for path, _ in fields(spec, "")} - shown == set()


def test_each_sample_of_a_use_is_in_the_page_of_the_api():
    page = (SAMPLES.parents[1] / "docs" / "api.md").read_text()

    assert sorted(re.findall(r"^\| `([-\w]+\.yaml)` \|", page, re.MULTILINE)) == [file.name for file in USES]


@pytest.mark.controlplane
def test_the_sample_that_should_not_be_valid_is_not(control_plane: Cluster):
    sample = str(SAMPLES / "refused" / "invalid.yaml")
    answer = control_plane.kubectl("apply", "--dry-run=server", "--filename", sample, check=False)

    assert "limit (10%) must not be below reserved (40%)" in answer.stderr


@pytest.mark.controlplane
def test_the_operators_manifests_are_valid(control_plane: Cluster):
    control_plane.kubectl("apply", "--dry-run=client", "--validate=strict", "--kustomize", str(SAMPLES.parent))


@pytest.mark.parametrize("file", sorted(CRDS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_field_has_a_sentence(file: Path):
    (version,) = yaml.safe_load(file.read_text())["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    # The API server has its own description for this one, and allows no other.
    del schema["properties"]["metadata"]

    silent = [path for path, field in fields(schema, "") if not field.get("description", "").endswith(".")]

    assert silent == []


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from fields(field, f"{path}.{name}")
    for kind in ("items", "additionalProperties"):
        if isinstance(schema.get(kind), dict):
            yield from fields(schema[kind], f"{path}[]")


def paths(value: Any, path: str) -> Iterator[str]:
    """The paths of an object's values, named like those of `fields`."""
    yield path
    if isinstance(value, dict):
        for name, entry in value.items():
            # Labels are data, not fields.
            yield from paths(entry, f"{path}[]" if path.endswith(".matchLabels") else f"{path}.{name}")
    if isinstance(value, list):
        for entry in value:
            yield from paths(entry, f"{path}[]")
