"""Whatever an engine, a pod or an object says, the terminal shows it and does nothing else."""

import pytest

from tenantzone_cli import __main__ as cli

HOSTILE = "\x1b]0;owned\x07\x1b[2J\rfine\u202e"


def test_lines_reach_the_terminal_without_control_characters(capsys: pytest.CaptureFixture[str]):
    def refuse(_: object) -> int:
        raise cli.ApiError(400, HOSTILE)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "_run", refuse)
        assert cli.main(["top"]) == 1

    shown = capsys.readouterr().err
    assert "fine" in shown
    assert not set("\x1b\x07\r\u202e") & set(shown)
