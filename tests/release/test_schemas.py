"""Released schemas never change; the schemas of this version are new ones or released ones."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from hack.compatibility import read_definitions
from hack.release import schemas
from hack.release.schemas import CRDS, HASHES, RELEASED, FrozenError, freeze, hashes
from hack.version import ROOT, VERSION

RELEASES = sorted(folder.name for folder in RELEASED.glob("v*"))


def test_no_released_schema_has_changed_and_none_is_without_a_hash():
    assert hashes() == HASHES.read_text()
    assert HASHES.read_text().count("\n") == len(list(RELEASED.rglob("*.yaml")))


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_that_is_tagged_had_the_schemas_that_are_kept_of_it(release: str):
    def shown(path: str) -> bytes | None:
        done = subprocess.run(["git", "-C", ROOT, "show", f"{release}:{path}"], capture_output=True, check=False)
        return done.stdout if done.returncode == 0 else None

    if shown("crds") is None:
        pytest.skip(f"{release} is no tag here")
    for file in (RELEASED / release).iterdir():
        assert shown(f"crds/{file.name}") == file.read_bytes(), file.name


def test_a_version_that_was_released_has_no_other_schemas():
    kept = RELEASED / f"v{VERSION}"
    if kept.exists():
        assert read_definitions(CRDS) == read_definitions(kept), "raise the version in pyproject.toml"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder crds/ with one schema and nothing released."""
    crds = tmp_path / "crds"
    crds.mkdir()
    (crds / "zones.yaml").write_text("kind: One\n")
    monkeypatch.setattr(schemas, "CRDS", crds)
    monkeypatch.setattr(schemas, "RELEASED", crds / "released")
    monkeypatch.setattr(schemas, "HASHES", crds / "released" / "SHA256SUMS")
    return crds


def test_freezing_keeps_the_schemas_with_their_hashes_and_only_once(elsewhere: Path):
    folder = freeze()

    assert (folder / "zones.yaml").read_text() == "kind: One\n"
    digest = hashlib.sha256(b"kind: One\n").hexdigest()
    assert schemas.HASHES.read_text() == f"{digest}  v{VERSION}/zones.yaml\n"
    (elsewhere / "zones.yaml").write_text("kind: Other\n")
    with pytest.raises(FrozenError, match="raise the version"):
        freeze()
    assert (folder / "zones.yaml").read_text() == "kind: One\n"


def test_what_an_interrupted_run_has_left_is_made_anew(elsewhere: Path):
    left = elsewhere / "released" / f"v{VERSION}"
    left.mkdir(parents=True)
    (left / "half.yaml").touch()

    assert [file.name for file in freeze().iterdir()] == ["zones.yaml"]
    assert schemas.hashes() == schemas.HASHES.read_text()


def test_freezing_leaves_the_hashes_of_earlier_releases_as_they_are(elsewhere: Path):
    edited = elsewhere / "released" / "v0.0.1" / "zones.yaml"
    edited.parent.mkdir(parents=True)
    edited.write_text("kind: Edited\n")
    before = f"{hashlib.sha256(b'kind: Once').hexdigest()}  v0.0.1/zones.yaml\n"
    schemas.HASHES.write_text(before)

    freeze()

    assert schemas.HASHES.read_text().startswith(before)
    assert schemas.hashes() != schemas.HASHES.read_text()
