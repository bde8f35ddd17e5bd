"""The page on the growth of vLLM's parsers has a row for each parser of the installed vLLM."""

import re

import pytest
import vllm

from hack.generate.parsers_page import PAGE, page
from hack.harness.answer_parsers import ParserName, registered

_CHECK = re.compile(r"^\| `([^`]+)` \|(.*)\|$", re.M)
_ROW = re.compile(r"^\| (tool|reasoning) `([^`]+)` \|(.*)\|$", re.M)


def test_each_parser_has_a_row():
    text = PAGE.read_text()
    if f"vLLM {vllm.__version__} " not in text:
        pytest.skip("the page is about another version of vLLM")
    assert [ParserName(kind, name) for kind, name, _ in _ROW.findall(text)] == registered(), "run `make parsers-page`"
    assert [("reasoning", name) for name, _ in _CHECK.findall(text)] == [
        parser for parser in registered() if parser.kind == "reasoning"
    ]


def test_the_page_is_as_it_is_written():
    text = PAGE.read_text()
    rows, checks = ([line for line in text.splitlines() if row.match(line)] for row in (_ROW, _CHECK))
    if f"vLLM {vllm.__version__} " in text:
        assert page(rows, checks) == text
