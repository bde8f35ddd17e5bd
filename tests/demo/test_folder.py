"""One demo at a time in a folder, each starts from nothing, and ``make down`` removes its folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from hack.controlplane.detached import keeper_of
from hack.demo import playground
from hack.demo.paths import REPOSITORY
from hack.demo.stack import AlreadyRunningError, fresh_folder
from tests.waiting import await_that

KEEPER = """
import os, signal, subprocess, sys
from pathlib import Path
from hack.controlplane.detached import record_keeper
from hack.demo.stack import fresh_folder

folder = Path(sys.argv[1])
record_keeper(folder)
with fresh_folder(folder) as lock:
    # It holds the lock for a while after the keeper has ended, as a process that the keeper started may do.
    subprocess.Popen(["sleep", "1"], pass_fds=[lock])
    (folder / "keys").mkdir()
    (folder / "guide").touch()
    signal.pause()
"""


def test_a_second_demo_in_the_folder_is_refused_and_harms_nothing(tmp_path: Path):
    with fresh_folder(tmp_path):
        key = tmp_path / "keys" / "acme"
        key.parent.mkdir()
        key.touch()
        with pytest.raises(AlreadyRunningError, match=str(tmp_path)), fresh_folder(tmp_path):
            pass
        assert key.exists()


def test_the_next_demo_starts_without_what_the_last_one_left(tmp_path: Path):
    with fresh_folder(tmp_path):
        (tmp_path / "keys").mkdir()
        (tmp_path / "keys" / "acme").touch()
    with fresh_folder(tmp_path):
        assert not (tmp_path / "keys").exists()


def keeper_in(folder: Path) -> subprocess.Popen[bytes]:
    """A keeper that holds the folder and has its files there."""
    folder.mkdir(parents=True)
    keeper = subprocess.Popen([sys.executable, "-c", KEEPER, folder], cwd=REPOSITORY)
    await_that((folder / "guide").exists, "the keeper holds the folder")
    assert keeper_of(folder) == keeper.pid
    return keeper


def test_down_ends_the_keeper_and_leaves_nothing_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(playground, "FOLDER", tmp_path / ".demo" / "up")
    keeper = keeper_in(playground.FOLDER)

    playground.down()

    assert keeper.wait() != 0
    assert not playground.FOLDER.exists()
    assert "What up had started has ended." in capsys.readouterr().out


def test_down_removes_what_a_keeper_left_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(playground, "FOLDER", tmp_path / ".demo" / "up")
    keeper = keeper_in(playground.FOLDER)
    keeper.kill()
    keeper.wait()

    playground.down()

    assert not playground.FOLDER.exists()
    assert "Nothing is up." in capsys.readouterr().out


def test_down_where_nothing_ever_was_up_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(playground, "FOLDER", tmp_path / ".demo" / "up")

    playground.down()

    assert "Nothing is up." in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
