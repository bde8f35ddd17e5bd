"""The README is short, begins with the installation, and its commands and objects are those of the repository."""

import re
import shlex
import subprocess

import pytest
import yaml

from hack.manifests.tools import helm
from tests.docs.test_site import REPOSITORY

PAGE = (REPOSITORY / "README.md").read_text()
MOST_WORDS = 900
FIRST_SCREEN_LINES = 30
COMMANDS = re.sub(r" \\\n +", " ", PAGE)
"""The page with each command on one line."""


def test_it_is_short():
    assert len(PAGE.split()) <= MOST_WORDS


def test_the_first_screen_says_how_to_install():
    assert "\n    helm install " in "\n".join(PAGE.splitlines()[:FIRST_SCREEN_LINES])


def test_helm_accepts_the_command_and_the_operator_has_the_image_that_make_push_made():
    (command,) = re.findall(r"^    helm install (.*)$", COMMANDS, re.MULTILINE)
    (registry,) = re.findall(r"^    make push REGISTRY=(\S+)$", COMMANDS, re.MULTILINE)
    done = subprocess.run(
        [helm(), "template", *shlex.split(command)], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (operator,) = (body for body in yaml.safe_load_all(done.stdout) if body and body["kind"] == "Deployment")
    (container,) = operator["spec"]["template"]["spec"]["containers"]
    assert container["image"].rpartition(":")[0] == f"{registry}/tenantzone-operator"


def test_make_has_each_target_that_it_names():
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^    |`)make ([a-z-]+)", PAGE, re.MULTILINE))
    assert {"demo", "push"} <= named
    assert named - targets == set()


def test_its_objects_are_the_samples():
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    samples = [yaml.safe_load(path.read_text()) for path in (REPOSITORY / "manifests" / "samples").glob("*.yaml")]

    def by_name(body: dict) -> str:
        return str(body["metadata"]["name"])

    assert sorted(yaml.safe_load_all(block), key=by_name) == sorted(samples, key=by_name)


@pytest.mark.parametrize("zone", ["acme", "burst"])
def test_what_kubectl_shows_has_the_columns_of_the_api_and_the_zones_specs(zone: str):
    (shown,) = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    header, *rows = shown.splitlines()
    crd = yaml.safe_load((REPOSITORY / "crds" / "tenantzones.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    columns = [each["name"].upper() for each in version["additionalPrinterColumns"] if not each.get("priority")]
    assert header.split() == ["NAME", *columns]

    (row,) = (row for row in rows if row.startswith(f"{zone} "))
    cells = {name: row[header.index(name) :].split("  ")[0].strip() for name in header.split()}
    spec = yaml.safe_load((REPOSITORY / "manifests" / "samples" / f"{zone}.yaml").read_text())["spec"]
    assert (cells["POOL"], cells["RESERVED"]) == (spec["pool"], str(spec["reserved"]))
    assert (cells["PRIORITY"], cells["LIMIT"]) == (str(spec.get("priority", 0)), spec.get("limit", ""))
