"""The other Pythons of a machine, for ``make quick-pythons``: one that does not run counts as one that is not there."""

import sys
from pathlib import Path

import pytest

from hack.other_pythons import find

NAME = "python3.12"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two folders of PATH, and one of pyenv."""
    found = [tmp_path / "first", tmp_path / "second", tmp_path / "pyenv" / "versions" / "3.12.1" / "bin"]
    for folder in found:
        folder.mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{found[0]}:{found[1]}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return found


def put(folder: Path, content: bytes) -> Path:
    path = folder / NAME
    path.write_bytes(content)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(b"\x7fELF of another machine", id="of another machine"),
        pytest.param(b"#!/nowhere/bash\n", id="a script without its interpreter"),
        pytest.param(b"#!/bin/sh\nexit 127\n", id="a script that fails"),
    ],
)
def test_what_does_not_run_is_passed_over(folders: list[Path], broken: bytes):
    first, second, pyenv = folders
    put(first, broken)
    assert find(NAME) is None
    installed = put(pyenv, f'#!/bin/sh\nexec {sys.executable} "$@"\n'.encode())
    found = find(NAME)
    assert found is not None
    assert (found.path, found.version) == (installed, sys.version)
    on_path = put(second, installed.read_bytes())
    found = find(NAME)
    assert found is not None
    assert found.path == on_path
