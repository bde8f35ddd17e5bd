"""kubeconform, with the schemas of the pinned Kubernetes, of ours, and of the Prometheus Operator."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from hack.manifests.schemas import LOCATION
from hack.manifests.tools import kubeconform
from tests.manifests.rendering import MANIFESTS, PROJECT, kustomize


def findings(schemas: Path, *checked: Path) -> list[str]:
    """kubeconform's findings about objects that do not fit.

    Raises:
        AssertionError: it found nothing to check.
    """
    done = subprocess.run(
        [
            kubeconform(),
            "-strict",
            "-schema-location",
            f"{schemas}/{LOCATION}",
            "-output",
            "json",
            "-summary",
            *checked,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    said = json.loads(done.stdout)
    assert sum(said["summary"].values()) > 0, done.stderr
    assert said["summary"]["skipped"] == 0
    return [f"{entry['kind']} {entry['name']}: {entry['msg']}" for entry in said.get("resources") or []]


def test_everything_that_we_ship_fits_the_schemas(schemas, rendered_folder):
    assert findings(schemas, rendered_folder) == []


def test_crds_and_samples_fit_the_schemas(schemas):
    samples = [file for file in (MANIFESTS / "samples").rglob("*.yaml") if file.parent.name != "refused"]

    assert findings(schemas, *(PROJECT / "crds").glob("*.yaml"), *samples) == []


@pytest.mark.parametrize(
    ("kind", "name", "path", "value", "word"),
    [
        ("Deployment", "vllm", ("spec", "template", "spec", "containers", 0, "image_"), "x", "image_"),
        ("Deployment", "vllm", ("spec", "replicas"), "1", "replicas"),
        ("TenantZone", "acme", ("spec", "reserve"), "40%", "reserve"),
        ("TenantZone", "acme", ("spec", "reserved"), "forty", "reserved"),
    ],
)
def test_a_wrong_field_is_found(schemas, tmp_path, kind, name, path, value, word):
    objects = kustomize("overlays/cpu-demo")
    *parents, last = path
    part = objects[kind, name]
    for parent in parents:
        part = part[parent]
    part[last] = value
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump_all(objects.values()))

    (found,) = findings(schemas, tmp_path)
    assert found.startswith(f"{kind} {name}: ")
    assert word in found
