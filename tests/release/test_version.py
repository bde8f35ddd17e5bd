"""One version: pyproject.toml agrees with images, chart, manifests and release notes."""

import re

from hack.release.schemas import RELEASED
from hack.version import ROOT, VERSION, files

NOTES = (ROOT / "docs" / "release-notes.md").read_text(encoding="utf-8")


def number(version: str) -> list[int]:
    return [int(part) for part in version.removeprefix("v").split(".")]


def test_each_file_that_repeats_the_version_says_the_same():
    for path, text in files().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run make generate"
        assert VERSION in text, f"{path} does not repeat the version: take it off the list"


def test_no_other_file_of_manifests_and_images_repeats_it():
    tagged = re.compile(r"tenantzone-(?:operator|engine)[\w-]*:\d+\.\d+\.\d+|newTag: \d")
    places = [ROOT / "Dockerfile", *(ROOT / "manifests").rglob("*.yaml"), *(ROOT / "docs").rglob("*.md")]
    measured = ROOT / "docs" / "measurements.md"
    naming = {path for path in places if tagged.search(path.read_text(encoding="utf-8"))} - {measured}
    assert naming <= files().keys()


def test_the_release_notes_begin_with_this_version_and_have_each_one_that_was_released():
    reported = re.findall(r"^## (\d+\.\d+\.\d+)", NOTES, re.MULTILINE)
    assert reported[0] == VERSION
    assert reported == sorted(reported, key=number, reverse=True)
    assert {folder.name.removeprefix("v") for folder in RELEASED.glob("v*")} <= set(reported)
