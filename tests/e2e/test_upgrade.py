"""From the manifests of the commit before to these, and the zones stay as they are."""

import dataclasses
import subprocess
import tarfile

import pytest

from tests.e2e.kustomizing import PROJECT


@pytest.fixture
def before(installation, tmp_path):
    """The same installation with the manifests of the commit before."""
    archive = subprocess.run(["git", "-C", PROJECT, "archive", "HEAD^", "crds", "manifests"], capture_output=True)
    if archive.returncode:
        pytest.skip("there is no commit before this one in a shallow clone")
    (tmp_path / "before.tar").write_bytes(archive.stdout)
    with tarfile.open(tmp_path / "before.tar") as tar:
        tar.extractall(tmp_path / "before", filter="data")
    return dataclasses.replace(installation, folder=tmp_path / "kustomization", project=tmp_path / "before")


def test_changes_are_enforced_before_and_after(installation, before, engines):
    before.install()
    engines.reserve("acme", 64)
    installation.install()
    engines.reserve("acme", 65)
