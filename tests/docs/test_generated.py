"""`make generate` writes the files as they are, and .gitattributes marks exactly those as generated."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.monitoring.files import CASES, cases
from hack.version import files as repeating_the_version
from tests.docs.test_site import REPOSITORY

UNTOUCHED = 1_000_000_000
"""The modification time of an untouched file."""
LOCKS = "requirements/"
"""`make lock` asks the package index, so its output can't be predicted."""


def git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", REPOSITORY, *arguments], capture_output=True, text=True, check=True).stdout


def tracked() -> Iterator[Path]:
    """Files of this tree, in their current state."""
    for name in git("ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0"):
        path = Path(name)
        if name and (REPOSITORY / path).is_file():
            yield path


def marked() -> set[Path]:
    """Files that .gitattributes calls generated, without the locks."""
    names = "\n".join(map(str, tracked()))
    command = ["git", "-C", REPOSITORY, "check-attr", "--stdin", "linguist-generated"]
    reported = subprocess.run(command, input=names, capture_output=True, text=True, check=True).stdout
    lines = [line.removesuffix(": linguist-generated: set") for line in reported.splitlines() if line.endswith(": set")]
    return {Path(line) for line in lines if not line.startswith(LOCKS)}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree without generated files, after `make generate`."""
    folder = tmp_path_factory.mktemp("tree")
    for path in set(tracked()) - marked():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes((REPOSITORY / path).read_bytes())
        os.utime(folder / path, (UNTOUCHED, UNTOUCHED))
    # No environment is made there: it runs in this one.
    here = ("PYTHON=true", f"VENV={Path(sys.executable).parent}")
    paths = ":".join(str(folder / part) for part in ("operator", "runtime", ""))
    done = subprocess.run(
        ["make", "--no-print-directory", "generate", *here],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_what_is_generated_is_up_to_date(copy: Path):
    stale = [path for path in tracked() if (copy / path).read_bytes() != (REPOSITORY / path).read_bytes()]
    assert stale == [], "run make generate"


def test_all_that_is_marked_as_generated_comes_from_make_generate(copy: Path):
    assert len(marked()) > 15
    assert [path for path in marked() if not (copy / path).is_file()] == []


def test_all_that_make_generate_writes_is_marked(copy: Path):
    files = (path for path in copy.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    written = {path.relative_to(copy) for path in files if path.stat().st_mtime != UNTOUCHED}
    repeating = [*repeating_the_version(), *(CASES / name for name in cases())]
    assert written - marked() == {path.relative_to(REPOSITORY) for path in repeating}
