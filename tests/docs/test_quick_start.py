"""The kustomizations and commands of docs/quick-start.md work as intended."""

import base64
import json
import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest
import yaml

from hack.controlplane import Cluster
from hack.controlplane.binaries import find_kubectl
from hack.version import VERSION
from tenantzone_contract.keys.admin_token import admin_secret_name
from tenantzone_contract.keys.salt import salt_secret_name
from tenantzone_operator.kube.names import config_map_name
from tests.docs.test_site import DOCS, REPOSITORY

PAGE = (DOCS / "quick-start.md").read_text()
KUSTOMIZATION = re.compile(r"^```yaml\n# (\S+)/kustomization\.yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


ENGINES_THAT_RUN = PAGE.partition("\n## Engines that run already\n")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory) -> dict[str, list[dict]]:
    """The objects that each kustomization makes, by its folder."""
    folder = tmp_path_factory.mktemp("quick-start")
    clone = os.path.relpath(REPOSITORY, folder / "any")
    made = {}
    for name, kustomization in KUSTOMIZATION.findall(PAGE):
        assert f"kubectl apply -k {name}\n" in PAGE
        (folder / name).mkdir()
        ours = kustomization.replace("../tenantzone/", f"{clone}/").replace("REGISTRY", "registry.example")
        (folder / name / "kustomization.yaml").write_text(ours)
        done = subprocess.run([find_kubectl(), "kustomize", folder / name], capture_output=True, text=True)
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


@pytest.mark.controlplane
def test_engines_that_run_already_find_all_that_their_pods_mount(
    control_plane: Cluster, namespace: str, tmp_path: Path
):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(control_plane.kubeconfig.read_bytes())
    path = f"{control_plane.kubectl_program.parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "PATH": path}

    def type_in(command: str, **more: str) -> str:
        done = subprocess.run(
            command, shell=True, cwd=REPOSITORY, env=environment, capture_output=True, text=True, **more
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def get(what: str) -> dict:
        return json.loads(type_in(f"kubectl get {what} --output=json"))

    type_in(f"kubectl config set-context --current --namespace={namespace}")
    commands = re.findall(r"^ {7}(kubectl .*)$", ENGINES_THAT_RUN, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        type_in(command)
    (fragment,) = re.findall(r"^   ```yaml\n(.*?)^   ```$", ENGINES_THAT_RUN, re.MULTILINE | re.DOTALL)
    pod = {"apiVersion": "v1", "kind": "Pod"} | yaml.safe_load(textwrap.dedent(fragment))
    pod["metadata"]["name"] = "engine"
    pod["spec"]["containers"][0]["image"] = "vllm"
    type_in("kubectl apply --filename=-", input=json.dumps(pod))

    # What is not optional must be there before the pod starts; the operator makes the rest for the pool.
    assert get("tenantzone acme")["spec"]["pool"] == get("zonepool demo")["metadata"]["name"]
    assert get("zonepool demo")["spec"]["selector"]["matchLabels"] == get("pod engine")["metadata"]["labels"]
    made = {admin_secret_name("demo"), salt_secret_name("demo"), config_map_name("demo")}
    for volume in get("pod engine")["spec"]["volumes"]:
        secret, config = volume.get("secret", {}), volume.get("configMap", {})
        name = secret.get("secretName") or config["name"]
        if not (secret or config).get("optional"):
            assert base64.b64decode(get(f"secret {name}")["data"]["acme"])
        else:
            made.remove(name)
    assert made == set()
    (show,) = re.findall(r"`(kubectl\sget secret [^`]*)`", ENGINES_THAT_RUN)
    key = type_in(re.sub(r"\s+", " ", show))
    assert key.encode() == base64.b64decode(get("secret tenant-keys")["data"]["acme"])
