"""What a user sees while a long command runs."""

import re
import sys

import pytest

from hack import progress
from hack.progress import CommandFailed, watch, written


def test_a_silent_command_is_reported_on(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "_SILENCE_SECONDS", 0.05)
    script = "import time; open('/dev/null', 'wb', 0).write(bytes(3_000_000)); time.sleep(0.5)"
    watch("test", [sys.executable, "-c", script], status=written)
    shown = capfd.readouterr().err.splitlines()
    assert len(shown) > 1
    assert re.fullmatch(r"test       \| \d+:\d\d 3 MB written", shown[-1])


def test_only_lines_worth_saying_are_shown(capfd: pytest.CaptureFixture[str]) -> None:
    script = "print('noise'); print('news')"
    watch("test", [sys.executable, "-c", script], status=written, worth_saying=lambda line: line == "news")
    assert capfd.readouterr().err == "test       | news\n"


def test_a_failed_command_is_shown_with_its_output() -> None:
    with pytest.raises(CommandFailed, match=r"(?s)exit code 3:\n.*the reason"):
        watch("test", [sys.executable, "-c", "print('the reason'); exit(3)"], status=written, worth_saying=bool)
