"""The files of a release, really built; images are built in tests/images."""

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from hack.progress import CommandFailed
from hack.release.build import build, check_out, version_of, wheel
from hack.version import ROOT


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    (folder / "tenantzone-0.0.1-py3-none-any.whl").touch()
    build(folder, images=())
    return folder


@pytest.fixture(scope="module")
def version() -> str:
    """The version of the last commit, from which a release is made."""
    text = subprocess.run(
        ["git", "-C", ROOT, "show", "HEAD:pyproject.toml"], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r'^version = "(.*)"$', text, re.MULTILINE)
    assert found is not None
    return found[1]


def test_it_has_wheel_chart_contents_and_checksums_and_nothing_else(built: Path, version: str):
    assert sorted(path.name for path in built.iterdir()) == sorted(
        [
            f"tenantzone-{version}-py3-none-any.whl",
            f"tenantzone-{version}.tgz",
            *(f"tenantzone-{part}-{version}.cdx.json" for part in ("operator", "manager", "engine-cpu", "engine-gpu")),
            "SHA256SUMS",
        ]
    )


def test_the_checksums_are_right(built: Path):
    done = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=built, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": OK\n") == len(list(built.iterdir())) - 1


def test_the_wheel_has_what_the_packages_read_next_to_their_modules(built: Path):
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "tenantzone_cli/doctor/shipped.json",
        "tenantzone_manager/index/commit.lua",
        "tenantzone_manager/server/manager.proto",
        "tenantzone_manager/server/openapi.json",
        "tenantzone_operator/console/page/index.html",
        "tenantzone_runtime/logging.json",
        "tenantzone_contract/py.typed",
    } <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {
        "tenantzone",
        "tenantzone_cli",
        "tenantzone_contract",
        "tenantzone_manager",
        "tenantzone_operator",
        "tenantzone_replay",
        "tenantzone_runtime",
    }


def test_the_same_commit_gives_the_same_wheel(built: Path, tmp_path: Path):
    check_out(tmp_path / "source")
    wheel(tmp_path / "source", tmp_path)
    (first,), (second,) = built.glob("*.whl"), tmp_path.glob("*.whl")
    assert first.read_bytes() == second.read_bytes()


def test_the_chart_is_of_the_version(built: Path, version: str):
    (chart,) = built.glob("*.tgz")
    with tarfile.open(chart) as archive:
        reported = archive.extractfile("tenantzone/Chart.yaml")
        assert reported is not None
        text = reported.read().decode()
    assert f"version: {version}\n" in text
    assert f"appVersion: {version}\n" in text


def test_the_contents_name_what_is_locked(built: Path, version: str):
    contents = json.loads((built / f"tenantzone-operator-{version}.cdx.json").read_text())
    lock = (ROOT / "requirements" / "operator.txt").read_text()
    locked = dict(re.findall(r"^([\w.-]+)==([\w.]+) ", lock, re.MULTILINE))
    named = {part["name"].lower().replace("_", "-"): part["version"] for part in contents["components"]}
    assert contents["bomFormat"] == "CycloneDX"
    assert contents["metadata"]["component"]["name"] == "tenantzone"
    assert len(locked) > 10
    assert {name: named.get(name.lower()) for name in locked} == locked


def test_without_a_commit_it_says_what_is_missing(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "hack.release", "build", "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "GIT_DIR": str(tmp_path / "nothing")},
    )
    assert done.returncode == 1
    assert "a release is made of a commit" in done.stderr


def test_a_folder_with_something_else_is_left_as_it_is(tmp_path: Path):
    for name in ("tenantzone-0.0.1.tgz", "SHA256SUMS", "thesis.odt"):
        (tmp_path / name).write_text("precious")
    with pytest.raises(CommandFailed, match=r"thesis\.odt is no file of a release"):
        build(tmp_path, images=())
    assert {path.name for path in tmp_path.iterdir()} == {"tenantzone-0.0.1.tgz", "SHA256SUMS", "thesis.odt"}


def test_its_version_is_that_of_the_commit_and_not_of_what_lies_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    check_out(tmp_path)
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text(re.sub(r'^version = ".*"$', 'version = "99.0.0"', pyproject.read_text(), flags=re.MULTILINE))
    monkeypatch.chdir(ROOT)
    assert version_of(tmp_path) == "99.0.0"
