"""The fuzzing of `make test-deep` finds unexpected faults, and reports them."""

from pathlib import Path

from tests.parsers.fuzz import fuzz
from tests.parsers.known import PARSERS

BROKEN = """
from tests.parsers.known import Parser

def read(text):
    if text[:1] == b"\\x07" and text[1:2] == b"z":
        raise KeyError("it does not declare this error")

PARSERS = {"broken": Parser(read, ValueError, '{"good": 1}')}
"""


def test_what_a_parser_does_not_say_that_it_raises_is_found(tmp_path: Path, monkeypatch):
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    wrong = fuzz("broken", PARSERS["request"], 60, "broken")
    assert wrong.startswith("text: b'\\x07z")
    assert "it does not declare this error" in wrong


def test_of_a_parser_that_is_right_nothing_is_said(capfd):
    assert fuzz("request", PARSERS["request"], 1) == ""
    assert " texts, which reached " in capfd.readouterr().err
