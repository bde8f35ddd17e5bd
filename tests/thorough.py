"""Marks the tests that ``make test`` leaves to ``make test-rest``, by the list of files in ``thorough.txt``.

``make test`` has all tests of pure logic and at least one file for each real part: an API server, an engine, a browser,
Redis, images. The list has the files that take longest among the others. A pytest plugin.
"""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LIST = TESTS / "thorough.txt"


def listed() -> list[str]:
    """The listed files, relative to this folder."""
    lines = (line.partition("#")[0].strip() for line in LIST.read_text().splitlines())
    return [line for line in lines if line]


# Before pytest selects by markers.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files = {TESTS / name for name in listed()}
    for item in items:
        if item.path in files:
            item.add_marker(pytest.mark.thorough)
