"""The kustomizations that docs/quick-start.md gives say what they are meant to say."""

import os
import re
import subprocess

import pytest
import yaml

from hack.controlplane.binaries import find_kubectl
from hack.version import VERSION
from tests.docs.test_site import DOCS, REPOSITORY

PAGE = (DOCS / "quick-start.md").read_text()
KUSTOMIZATION = re.compile(r"^```yaml\n# (\S+)/kustomization\.yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory) -> dict[str, list[dict]]:
    """What each of them makes, by its folder."""
    beside = tmp_path_factory.mktemp("quick-start")
    clone = os.path.relpath(REPOSITORY, beside / "any")
    made = {}
    for name, kustomization in KUSTOMIZATION.findall(PAGE):
        assert f"kubectl apply -k {name}\n" in PAGE
        (beside / name).mkdir()
        ours = kustomization.replace("../tenantzone/", f"{clone}/").replace("REGISTRY", "registry.example")
        (beside / name / "kustomization.yaml").write_text(ours)
        done = subprocess.run([find_kubectl(), "kustomize", beside / name], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        made[name] = list(yaml.safe_load_all(done.stdout))
    return made


def container(objects: list[dict]) -> dict:
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return container


def test_the_operators_image_is_the_registrys(rendered):
    assert container(rendered["my-operator"])["image"] == f"registry.example/tenantzone-operator:{VERSION}"


def test_the_engine_gets_image_model_memory_and_a_gpu(rendered):
    engine = container(rendered["my-engines"])
    assert engine["image"] == f"registry.example/tenantzone-engine:{VERSION}"
    assert engine["args"][:2] == ["serve", "Qwen/Qwen3-8B"]
    assert engine["args"][-1] == "--max-model-len=16384"
    assert engine["resources"]["requests"]["memory"] == "32Gi"
    assert engine["resources"]["limits"] == {"memory": "64Gi", "nvidia.com/gpu": "1"}
