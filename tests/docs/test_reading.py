"""The reading order names existing files, and is short enough to be read."""

import re
from pathlib import Path

import pytest

from tests.docs.test_site import DOCS, REPOSITORY

PAGE = (DOCS / "reading.md").read_text()
MOST_FILES = {"The scheduler core": 15, "The operator": 8}
MOST_LINES = 8_000
"""For the scheduler core."""


def entries(heading: str) -> dict[Path, str]:
    """The files of one list of the page, in order, each with its text."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    items = re.findall(r"^\d+\. `(\S+)`: (.*(?:\n +\S.*)*)", section, re.MULTILINE)
    assert len(items) == len(re.findall(r"^\d+\. ", section, re.MULTILINE)), "an item does not begin with its file"
    found = {REPOSITORY / name: text for name, text in items}
    assert len(found) == len(items), "a file is named twice"
    return found


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


@pytest.mark.parametrize("heading", MOST_FILES)
def test_each_list_names_existing_files_and_no_more_than_its_bound(heading: str):
    files = entries(heading)
    assert [path for path in files if not path.is_file()] == []
    assert 0 < len(files) <= MOST_FILES[heading]


def test_the_scheduler_core_has_at_most_8000_lines_to_read():
    lines = {str(path.relative_to(REPOSITORY)): lines_of(path) for path in entries("The scheduler core")}
    assert sum(lines.values()) <= MOST_LINES, lines


@pytest.mark.parametrize("heading", MOST_FILES)
def test_each_file_has_the_names_that_its_entry_mentions(heading: str):
    missing = {
        (path.name, name)
        for path, text in entries(heading).items()
        for name in re.findall(r"`(\w+)`", text)
        if not re.search(rf"\b{name}\b", path.read_text())
    }
    assert missing == set()


def test_the_page_says_the_same_bounds():
    words = " ".join(PAGE.split())
    assert f"these are {MOST_FILES['The scheduler core']} files with at most {MOST_LINES:,} lines in total" in words
    assert f"for the operator, {MOST_FILES['The operator']} files" in words
