"""The operator's image, really built, on a base that stands in for the official one."""

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from hack.images import Image, build
from hack.images.build import ROOT
from tests.images.checks import assert_labelled, needs_root, python

pytestmark = needs_root

LARGEST_OPERATOR_BYTES = 150e6


@pytest.fixture(scope="module")
def operator(users_path: None) -> Image:
    return build("operator")


def test_the_dockerfile_has_no_findings():
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_operators_entrypoint_runs_and_is_not_root(operator):
    config = operator.inspect()["config"]
    assert config["User"] == "65532:65532"
    done = operator.run(*config["Entrypoint"], "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: tenantzone-operator")
    assert python(operator, "import os; print(os.getuid(), os.getgid())") == "65532 65532"


def test_the_operators_image_is_small_and_has_no_shell(operator):
    assert operator.size_bytes < LARGEST_OPERATOR_BYTES
    programs = python(operator, "import glob; print(*glob.glob('/bin/*'), *glob.glob('/usr/local/bin/*'))").split()
    assert {Path(program).name for program in programs} == {"python3", "python3.11"}


def test_the_operator_can_use_tls_and_names(operator):
    program = "import socket, ssl; ssl.create_default_context(); print(socket.getaddrinfo('localhost', 80)[0][4][0])"
    assert python(operator, program) in ("127.0.0.1", "::1")


def test_the_image_says_what_it_is(operator):
    assert_labelled(operator)


def test_the_operators_image_lists_what_is_in_it(operator):
    listed = json.loads(python(operator, "print(open('/usr/share/sbom/tenantzone-operator.cdx.json').read())"))
    versions = {part["name"].lower().replace("_", "-"): part["version"] for part in listed["components"]}
    locked = dict(re.findall(r"^([\w.-]+)==([\w.]+) ", (ROOT / "requirements/operator.txt").read_text(), re.MULTILINE))
    installed = {name.lower(): version for name, version in locked.items() if name.lower() in versions}
    assert {"kopf", "aiohttp", "pydantic", "prometheus-client", "pyyaml"} <= installed.keys()
    assert {name: versions[name] for name in installed} == installed
    packages = python(operator, "import os; print(*os.listdir('/var/lib/dpkg/status.d'))").split()
    assert {"libc6", "libssl3"} <= set(packages)


def test_an_archive_can_be_loaded_elsewhere(operator, tmp_path):
    archive = tmp_path / "operator.tar"
    operator.export(archive)
    with tarfile.open(archive) as files:
        (manifest,) = json.loads(files.extractfile("manifest.json").read())
    assert manifest["RepoTags"] == [operator.name]
