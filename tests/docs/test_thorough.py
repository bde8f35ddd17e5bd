"""The list of tests that ``make test`` leaves out is right, and leaves something of each real part."""

import re
import subprocess
import sys

import pytest

from tests.thorough import TESTS, listed

LISTED = listed()
ALL = {str(path.relative_to(TESTS)): path.read_text() for path in sorted(TESTS.rglob("test_*.py"))}
MARKERS = ("compiled", "controlplane", "engine", "flagged_engine")


def test_each_file_is_listed_once_and_exists() -> None:
    assert len(LISTED) == len(set(LISTED))
    assert set(LISTED) - set(ALL) == set()


@pytest.mark.parametrize("marker", MARKERS)
def test_something_of_each_real_part_is_left(marker: str) -> None:
    marked = {name for name, text in ALL.items() if re.search(rf"mark\.{marker}\b", text)}
    assert marked - set(LISTED)


def test_something_of_each_folder_is_left() -> None:
    folders = {name.partition("/")[0] for name in ALL if "/" in name}
    assert folders == {name.partition("/")[0] for name in set(ALL) - set(LISTED) if "/" in name}


def test_the_tests_run_without_the_plugin_for_parallel_processes() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        "-q",
        "tests/contract/test_share.py",
    ]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
