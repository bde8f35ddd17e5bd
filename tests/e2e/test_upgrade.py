"""An upgrade from the manifests and the operator of the last release leaves the zones as they are.

Until a release is tagged, from those of the previous commit.
"""

import dataclasses
import io
import subprocess

import pytest

from hack.archives import unpack
from hack.release.history import last_tag
from tests.e2e.kustomizing import PROJECT


@pytest.fixture
def before(installation, image_before, tmp_path):
    """The same installation in its previous version."""
    before = last_tag() or "HEAD^"
    archive = subprocess.run(["git", "-C", PROJECT, "archive", before, "crds", "manifests"], capture_output=True)
    if archive.returncode:
        pytest.skip("there is no commit before this one in a shallow clone")
    unpack(io.BytesIO(archive.stdout), tmp_path / "before")
    folder = tmp_path / "kustomization"
    return dataclasses.replace(installation, image=image_before, folder=folder, project=tmp_path / "before")


def test_changes_are_enforced_before_and_after(installation, before, image_before, image, engines):
    before.install()
    assert {pod["spec"]["containers"][0]["image"] for pod in before.pods()} == {image_before}
    engines.reserve("acme", 64)
    installation.install()
    assert {pod["spec"]["containers"][0]["image"] for pod in installation.pods()} == {image}
    assert set(engines.reserved("acme").values()) == {64}
    engines.reserve("acme", 65)
