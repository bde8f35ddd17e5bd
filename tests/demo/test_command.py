"""The command of the demo reports what is wrong, without a traceback."""

import signal
import sys
from pathlib import Path

import pytest

from hack.demo import playground
from hack.demo.__main__ import main


def test_a_folder_that_can_not_be_made_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    (tmp_path / "file").touch()
    monkeypatch.setattr(playground, "FOLDER", tmp_path / "file" / "up")
    monkeypatch.setattr(sys, "argv", ["demo", "up"])
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main() == 1
    finally:
        signal.signal(signal.SIGTERM, before)

    assert f"Not a directory: '{tmp_path}/file/" in capsys.readouterr().err
