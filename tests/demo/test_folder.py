"""One demo at a time in a folder, and each starts with nothing of the last one."""

from pathlib import Path

import pytest

from hack.demo.stack import AlreadyRunningError, fresh_folder


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
